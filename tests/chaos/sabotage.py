"""Carries out a plan of faults on a run of real processes, and checks the result."""

import heapq
import itertools
import math
import os
import random
import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
import zmq
from safetensors.numpy import load_file

from benchmarks.common.event_log import EventReader
from benchmarks.common.run_history import Life, audit, check_summary
from hogbatch.events.event import EpochEnded, Evaluation, Resumed, WorkerJoined
from hogbatch.store.attach import attach_segments
from hogbatch.wire.codec import PREFIX
from tests.chaos.plan import Act
from tests.support.fault_injection import Job, wait_for

T = TypeVar("T")

ROWS = 29_305  # of a9a that are trained on
MAX_WORKERS = 4
NO_BYTE_CODE = {"PYTHONDONTWRITEBYTECODE": "1"}  # incomplete while files cannot become large
# Whatever belongs to a coordinator that has ended. Usually it takes milliseconds; how long is
# measured by benchmarks (docs/reliability.md), and a loaded machine may need seconds.
GONE_WITHIN_S = 60.0
KEPT_LOSS = 1.1  # times the target: the test loss of the model that the run keeps, at most
INTERRUPTED = 130
FAULT_EVENTS = (
    *("worker_lost", "worker_restarted", "resumed", "checkpoint_failed", "poisoned", "epoch"),
)


class Sabotage:
    """One run of a9a with `launched` workers of its own and one attached by hand."""

    def __init__(
        self,
        job: Job,
        *flags: object,
        launched: int = 1,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.job = job
        self.faults: list[str] = []
        self.lives: list[Life] = []
        self._say = say
        self._flags = flags
        self._launched = launched
        self._log = EventReader(job.run_dir / "events.jsonl")
        self._later: list[tuple[float, int, Callable[[], None]]] = []  # what is to be undone, when
        self._count = itertools.count()
        self._damaged: set[str] = set()  # checkpoints
        self._deeds: dict[str, Callable[[Act], str]] = {
            "kill": lambda act: self._strike(act, signal.SIGKILL),
            "crash": lambda act: self._strike(act, signal.SIGSEGV),
            "pause": self._pause,
            "leave": self._leave,
            "join": self._join,
            "garbage": self._garbage,
            "full disk": self._full_disk,
            "poison": self._poison,
            "coordinator": self._coordinator,
            "corrupt": self._corrupt,
        }

    # The run --------------------------------------------------------------------------------

    def begin(self, *flags: object) -> None:
        """Start it, or start it again, and wait until it trains."""
        if self._launched:
            workers = ",".join(["cpu:1"] * self._launched)
            self.job.train("a9a", "--workers", workers, *self._flags, *flags, **NO_BYTE_CODE)
            self._wait_for(self._is_open, "the coordinator publishes its address")
        else:
            self.job.coordinate("a9a", *self._flags, *flags, **NO_BYTE_CODE)
        self.job.attach()
        self._wait_for(self._working, "a worker trains")
        self.job.note_memory()

    def carry_out(self, acts: Sequence[Act]) -> None:
        """Do one act after the other at its time; what an act takes itself does not count."""
        began = time.monotonic()
        for act in acts:
            self._let_pass(began + act.at)
            start = time.monotonic()
            self._say(f"{act}: {self._deeds[act.what](act)}")
            began += time.monotonic() - start

    def end(self, target: float) -> None:
        """Wait for the end of an epoch and for the loss that is to be reached, end the run, and
        look at what it has left.

        The loss is awaited on the training set: after minutes of overfitting no model that is still
        in training has such a validation loss, but the best one, which the run has kept, does.
        """
        self._undo(math.inf)
        self._wait_for(self._epoch_has_ended, "an epoch ends")
        self._wait_for(lambda: self._train_loss() <= target, f"training loss {target}")
        self.job.coordinator.send_signal(signal.SIGINT)
        if (code := self.job.finish()) != INTERRUPTED:
            said = self.job.said(self.job.coordinator)
            self.faults.append(f"exit code {code} instead of {INTERRUPTED}: {said}")
        self._look_for_leftovers()
        self.lives.append(Life.of(self._log.next_life()))
        self.faults += audit(self.lives, ROWS)
        self.faults += check_summary(self.job.summary(), self.lives[-1])
        if (kept := self.job.summary()["validation"]["loss"]) > (most := KEPT_LOSS * target):
            self.faults.append(
                f"the kept model has validation loss {kept}, expected {most:g} at most"
            )
        model = load_file(self.job.run_dir / "model.safetensors")
        self.faults += [
            f"{name} is not finite"
            for name, tensor in model.items()
            if not np.isfinite(tensor).all()
        ]
        self.faults += [f"left over: {path}" for path in self.job.temporary_files()]

    def close(self) -> None:
        """End all that still runs."""
        self._undo(math.inf)
        self.job.close()
        self._log.close()

    def _let_pass(self, until: float) -> None:
        """Wait, and undo meanwhile what has lasted long enough."""
        while (now := time.monotonic()) < until:
            self._undo(now)
            time.sleep(min(0.01, until - now))

    def _wait_for(self, condition: Callable[[], T], what: str) -> T:
        """Wait, and undo faults that are due, because the awaited process may be stopped."""
        return wait_for(lambda: self._undo(time.monotonic()) or condition(), what)

    def _undo(self, now: float) -> None:
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2]()

    def _is_open(self) -> bool:
        self._check_that_it_runs()
        return self.job.address() is not None

    def _check_that_it_runs(self) -> None:
        if self.job.coordinator.poll() is not None:
            raise AssertionError(f"the run has ended: {self.job.said(self.job.coordinator)}")

    def _epoch_has_ended(self) -> bool:
        """Whether this life has ended one."""
        self._check_that_it_runs()
        return any(isinstance(event, EpochEnded) for event in self._log.read())

    def _train_loss(self) -> float:
        """The lowest of this life."""
        self._check_that_it_runs()
        found = [e.train_loss for e in self._log.read() if isinstance(e, Evaluation)]
        return min((loss for loss in found if loss is not None), default=float("inf"))

    def _resumed(self) -> Resumed | None:
        """What this life says of its checkpoint; None for the first."""
        events = self._log.read()
        return next((event for event in events if isinstance(event, Resumed)), None)

    def account(self) -> str:
        """How often the run was seen to be hit."""
        lives = [*(life.events for life in self.lives), self._log.read()]
        counts = Counter(event.name for events in lives for event in events)
        return ", ".join(f"{name} {counts[name]}" for name in FAULT_EVENTS)

    # Whom it meets --------------------------------------------------------------------------

    def _working(self) -> list[int]:
        """Processes that have trained in this life, the oldest first."""
        self._check_that_it_runs()
        return list(self._log.at_work().values())

    def _pick(self, act: Act) -> int:
        working = self._wait_for(self._working, "a worker trains")
        return working[int(act.whom * len(working))]

    def _own(self) -> dict[int, subprocess.Popen[bytes]]:
        """Workers attached by hand that live."""
        ours = (p for p in self.job.started if p is not self.job.coordinator)
        return {process.pid: process for process in ours if process.poll() is None}

    # What it does ---------------------------------------------------------------------------

    def _signal(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def _strike(self, act: Act, number: signal.Signals) -> str:
        """Signal a worker; nobody but us starts one again that was attached by hand."""
        pid, own = self._pick(act), self._own()
        self._signal(pid, number)
        if pid in own:
            self.job.attach()
        return f"process {pid}"

    def _pause(self, act: Act) -> str:
        pid = self._pick(act)
        self._signal(pid, signal.SIGSTOP)
        self._later_on(act.lasts, lambda: self._signal(pid, signal.SIGCONT))
        return f"process {pid}"

    def _leave(self, act: Act) -> str:
        own = [
            pid for pid in self._wait_for(self._working, "a worker trains") if pid in self._own()
        ]
        if not own:
            return "there is nobody"
        pid = own[int(act.whom * len(own))]
        self._signal(pid, signal.SIGTERM)
        self.job.attach()
        return f"process {pid}"

    def _join(self, act: Act) -> str:
        if len(self._own()) + self._launched >= MAX_WORKERS:
            return "enough are there"
        return f"process {self.job.attach().pid}"

    def _garbage(self, act: Act) -> str:
        chance, frames = random.Random(act.seed), 1000
        context = zmq.Context()
        with context.socket(zmq.DEALER) as stranger:
            stranger.connect(self.job.address()["control"])
            for n in range(frames):
                garbage = chance.randbytes(chance.randrange(200))
                with suppress(zmq.Again):
                    stranger.send(PREFIX + garbage if n % 2 else garbage, zmq.NOBLOCK)
        context.destroy(linger=100)
        return f"{frames} messages"

    def _full_disk(self, act: Act) -> str:
        """No file may become as large as a checkpoint; the log of events still may grow."""
        size = (self._checkpoints(1)[-1] / "tensors.safetensors").stat().st_size
        if (self.job.run_dir / "events.jsonl").stat().st_size > size // 2:
            return "the log is too long for that"
        pid = self.job.coordinator.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE, (size - 1, -1))
        self._later_on(act.lasts, lambda: _limit_files(pid, hard))
        return f"at {size - 1} bytes"

    def _poison(self, act: Act) -> str:
        received = attach_segments(self.job.address()["store"])
        params = received.segments["shared"].array("model/params")
        place = int(act.whom * len(params))
        params[place] = np.nan
        for segment in received.segments.values():
            segment.close()
        return f"parameter {place}"

    def _coordinator(self, act: Act) -> str:
        self._checkpoints(1)
        resumed = self._crash_coordinator()
        return f"resumed at {resumed and resumed.rows} rows"

    def _corrupt(self, act: Act) -> str:
        self._checkpoints(2)
        pid = self.job.coordinator.pid
        self._signal(pid, signal.SIGSTOP)  # so that it writes no newer one before it is killed
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        newest = self._checkpoints(2)[-1]
        chance = random.Random(act.seed)
        path = chance.choice(sorted(newest.iterdir()))
        content = bytearray(path.read_bytes())
        place = chance.randrange(len(content))
        content[place] ^= 1 << chance.randrange(8)
        path.write_bytes(content)
        self._damaged.add(newest.name)
        resumed = self._crash_coordinator()
        if (name := Path(resumed.checkpoint if resumed else newest).name) >= newest.name:
            flipped = f"byte {place} of {newest.name}/{path.name}"
            self.faults.append(f"it resumed from {name} though {flipped} was flipped")
        return (
            f"byte {place} of {newest.name}/{path.name}, resumed at {resumed and resumed.rows} rows"
        )

    def _crash_coordinator(self) -> Resumed | None:
        """Kill it, see that nothing is left, and start it again; how it has resumed."""
        coordinator = self.job.coordinator
        self._undo(math.inf)  # a worker that is stopped cannot end
        coordinator.kill()
        coordinator.wait()
        self._look_for_leftovers()
        self.lives.append(Life.of(self._log.next_life()))
        self.begin("--resume", "auto")
        return self._resumed()

    def _checkpoints(self, least: int) -> list[Path]:
        """Those that are not damaged, the oldest first, as soon as there are so many."""

        def there() -> list[Path]:
            paths = sorted((self.job.run_dir / "checkpoints").glob("[0-9]" * 6))
            found = [path for path in paths if path.name not in self._damaged]
            return found if len(found) >= least else []

        return self._wait_for(there, f"{least} checkpoints")

    def _later_on(self, seconds: float, undo: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, next(self._count), undo))

    def _look_for_leftovers(self) -> None:
        """Note what is still there of a coordinator that ended just now.

        A worker that was attached by hand a moment before is none of it: it still starts, which
        may take longer, and ends when it finds nobody.
        """
        joined = {e.pid for e in self._log.read() if isinstance(e, WorkerJoined)}
        newcomers = [process for pid, process in self._own().items() if pid not in joined]
        self._wait_for(lambda: all(p.poll() is not None for p in newcomers), "newcomers end")
        deadline = time.monotonic() + GONE_WITHIN_S
        while (left := self.job.leftovers()) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.faults += [f"{GONE_WITHIN_S:g} s after the end: {each}" for each in left]


def _limit_files(pid: int, limit: int) -> None:
    with suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, limit))
