"""Runs whose processes are killed while they train, and their events."""

import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
from safetensors.numpy import load_file

from benchmarks.common.event_log import EventReader
from benchmarks.common.job import Job, Process, wait_for
from hogbatch.events.event import Event, Resumed

T = TypeVar("T")
E = TypeVar("E", bound=Event)

ROWS = 29_305  # of a9a that are trained on
GONE_WITHIN_S = 2.0
ENDLESS = ("--epochs", 1_000_000)


class WatchedRun:
    """A run of `hogbatch train` in a folder of its own, and its events."""

    def __init__(self, folder: Path) -> None:
        self.job = Job(folder)
        self._log = EventReader(self.job.run_dir / "events.jsonl")

    def start(self, *flags: object) -> None:
        """Start or resume the run, and wait until it trains or has finished."""
        self.job.train(*flags)
        self.wait_for(lambda: self.at_work() or self.coordinator.poll() == 0, "the run trains")
        if self.running:
            with suppress(AssertionError):  # it has exited in the meantime
                self.job.note_memory()

    @property
    def coordinator(self) -> Process:
        """The coordinator's process."""
        assert self.job.coordinator
        return self.job.coordinator

    def errors(self) -> str:
        """The coordinator's stderr."""
        return self.job.said(self.coordinator)

    @property
    def running(self) -> bool:
        """Whether its coordinator is running."""
        return self.coordinator.poll() is None

    def ends_within(self, seconds: float) -> bool:
        """Wait up to `seconds`; whether the run has ended by then."""
        with suppress(subprocess.TimeoutExpired):
            self.coordinator.wait(seconds)
        return not self.running

    def mark(self) -> int:
        """A mark for `since`: the number of events so far."""
        return len(self._log.read())

    def since(self, mark: int, kind: type[E]) -> list[E]:
        """Events of this kind after `mark`."""
        return [event for event in self._log.read()[mark:] if isinstance(event, kind)]

    def at_work(self, leases: int = 1) -> dict[str, int]:
        """Workers with at least that many leases done in this life of the run: {name: pid}."""
        return self._log.at_work(leases)

    def resumed_at(self) -> int:
        """Rows trained on before this life of the run."""
        return sum(event.rows for event in self.since(0, Resumed))

    def next_life(self) -> list[Event]:
        """All events of the life that has ended; a new one begins."""
        return self._log.next_life()

    def wait_for(self, condition: Callable[[], T], what: str) -> T:
        """Wait for a true value while the run is in progress; RuntimeError if the run ends."""

        def found_or_ended() -> T:
            running = self.running
            found = condition()
            if not found and not running:
                raise RuntimeError(f"the run has ended: {self.errors()}")
            return found

        return wait_for(found_or_ended, what)

    def kill(self) -> list[str]:
        """Kill the coordinator; return the processes, sockets and memory left two seconds later.

        Files that it was writing may be left, too, until the next start.
        """
        self.coordinator.kill()
        self.coordinator.wait()
        return self._remaining()

    def leftovers(self) -> list[str]:
        """What still exists two seconds after the end, with temporary files."""
        return self._remaining() + [f"file {name}" for name in self.job.temporary_files()]

    def _remaining(self) -> list[str]:
        deadline = time.monotonic() + GONE_WITHIN_S
        while (left := self.job.leftovers()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def interrupt(self) -> int:
        """Stop it as Ctrl-C does; return its exit code."""
        self.coordinator.send_signal(signal.SIGINT)
        return int(self.job.finish())

    def close(self) -> None:
        """Stop all processes that still run."""
        self.job.close()
        self._log.close()

    def model_is_finite(self) -> bool:
        """Whether all weights of its model file are finite."""
        tensors = load_file(self.job.run_dir / "model.safetensors")
        return all(bool(np.isfinite(tensor).all()) for tensor in tensors.values())


@contextmanager
def watched() -> Iterator[WatchedRun]:
    """A run in a temporary folder that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="hogbatch-faults-"))
    run = WatchedRun(folder)
    try:
        yield run
    finally:
        run.close()
        shutil.rmtree(folder, ignore_errors=True)
