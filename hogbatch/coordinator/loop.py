"""The coordinator's hands: sockets, clock, process ends and signals around the pure state.

Every event goes into :class:`Coordinator`, every command that comes back is carried out here; no
decision is taken.
"""

import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from types import FrameType
from typing import Any, Protocol, assert_never

from hogbatch.coordinator.background import BackgroundTasks, Event
from hogbatch.coordinator.plan import (
    Command,
    Finish,
    Keep,
    Kill,
    Quarantine,
    Record,
    Report,
    Revoke,
    RollBack,
    Send,
    ShowMean,
    Shuffle,
    Snapshot,
)
from hogbatch.coordinator.saved import Saved
from hogbatch.coordinator.state import Coordinator
from hogbatch.store.fence import Fences
from hogbatch.store.segment_server import SegmentServer
from hogbatch.telemetry.records import Evaluation, RunTotals
from hogbatch.wire.channel import CoordinatorChannel
from hogbatch.wire.messages import ToCoordinator

TICK_S = 0.05
KILLED_WITHIN_MS = 200
MAX_HEARD = 1000
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Restart:
    """A worker that was started again."""

    runs_on: str  # as in Hello.name: "gpu:0"
    pid: int  # of the new process
    times: int  # since it last finished a lease
    most: int


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A worker that is not started again."""

    runs_on: str
    reason: str  # with the last lines of its log


class Children(Protocol):
    """The worker processes that this run has started itself."""

    def pids(self) -> list[int]:
        """Those of this server, whose ends are to be watched."""

    def cause_of_death(self, pid: int) -> str:
        """What is known of the end of process `pid`."""

    def died(self, pid: int, worked: bool, now: float) -> GivenUp | None:
        """Process `pid` has ended; it had `worked` if it had finished a lease.

        Plans when the worker is started again, if it was one of ours and a new process may do.
        """

    def start_due(self, now: float) -> Iterator[Restart | GivenUp]:
        """Start again those whose time has come."""

    def all_ended(self) -> str | None:
        """Why, if some were started, none runs any more, and none will be started again."""


class PendingCheckpoint(Protocol):
    """A checkpoint that is to be written."""

    @property
    def about(self) -> Mapping[str, object]:
        """What the event log says of it."""

    def write(self) -> str:
        """Write it, which may take long; return why that failed, or nothing."""


class Snapshots(Protocol):
    """Copies of the model."""

    def draft(self, saved: Saved) -> PendingCheckpoint:
        """Begin a checkpoint, with all that stands now and is not the model."""

    def copy(self, draft: Any) -> str:
        """Copy the model, for `draft` too; or return where it is not finite. May take long."""

    def put_back(self) -> None:
        """Put the last copy in the model's place."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """Everything outside the coordinator's mind, as the run has set it up."""

    end: CoordinatorChannel
    segment_server: SegmentServer
    fences: Fences
    children: Children
    snapshots: Snapshots
    shuffle: Callable[[int, int], None]  # writes an order; called on another thread
    quarantine: Callable[[int, int, int], None]
    record: Callable[[str, Mapping[str, object]], None]
    report: Callable[[Evaluation, RunTotals], None]
    show_mean: Callable[[bool], None]
    keep: Callable[[Evaluation | None], None]


class Loop:
    """Runs one coordinator to its end."""

    def __init__(self, state: Coordinator, adapters: Adapters) -> None:
        self._state = state
        self._around = adapters
        # (seconds, worker, message): the last ones, for a report when this process crashes
        self.heard: deque[tuple[float, str, ToCoordinator]] = deque(maxlen=MAX_HEARD)
        self._ends: dict[int, int] = {}  # pidfd → pid of each child and all who have mapped us
        self._background = BackgroundTasks()
        self._interrupts = 0
        self._finish: Finish | None = None

    def run(self) -> tuple[Finish, RunTotals]:
        """Carry on until the state says Finish; return how and where the run stood then.

        A second Ctrl-C raises KeyboardInterrupt.
        """
        adapters, state = self._around, self._state
        adapters.end.watch(self._background.wakeup.fd)
        adapters.end.watch(adapters.segment_server.fileno())
        for pid in adapters.children.pids():  # before they attach, for they may never do so
            self._watch(pid)
        try:
            with self._signals():
                self._carry_out(state.begin(time.monotonic()))
                while self._finish is None:
                    self._turn(adapters.end.wait(TICK_S))
                self._background.finish()  # not after a second Ctrl-C: a write may take long
        finally:
            self._background.wakeup.close()
            for pidfd in self._ends:
                os.close(pidfd)
        return self._finish, self._standing()

    def _standing(self) -> RunTotals:
        return self._state.standing(time.monotonic())

    def _turn(self, ready: list[int]) -> None:
        """One round: everything that has happened, then the clock."""
        adapters, state = self._around, self._state
        # First: time in which this process was stopped counts for nothing that has come meanwhile.
        self._carry_out(state.tick(time.monotonic()))
        for peer in (
            adapters.segment_server.serve() if adapters.segment_server.fileno() in ready else ()
        ):
            self._watch(peer.pid)
        for key, message in adapters.end.receive():
            self.heard.append((time.monotonic(), key, message))
            self._carry_out(state.receive(key, message, time.monotonic()))
        for pidfd in [fd for fd in ready if fd in self._ends]:
            self._bury(pidfd)
        for event in self._background.events():
            self._carry_out(event(time.monotonic()))
        if self._interrupts:
            self._carry_out(state.interrupt(time.monotonic()))
        if self._finish is None and not self._interrupts:  # no new processes for the last moments
            self._note(adapters.children.start_due(time.monotonic()))
        if not state.workers and (why := adapters.children.all_ended()):
            self._carry_out(state.abandon(why, time.monotonic()))

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Send(worker, message):
                    if not self._around.end.send(worker, message) and not self._is_watched(worker):
                        lost = self._state.lose(worker, "cannot be reached", time.monotonic())
                        self._carry_out(lost)
                case Revoke(number):
                    self._around.fences.revoke(number)
                case Kill(pid):
                    self._kill(pid)
                case Shuffle(epoch, without):
                    self._background.shuffles.submit(self._shuffle, epoch, without)
                case Quarantine(epoch, start, stop):
                    self._around.quarantine(epoch, start, stop)
                case Snapshot(saved):
                    draft = None if saved is None else self._around.snapshots.draft(saved)
                    self._background.copies.submit(self._copy, draft)
                case RollBack():
                    self._around.snapshots.put_back()
                case Record(event, fields):
                    self._around.record(event, fields)
                case Report(evaluation):
                    self._around.report(evaluation, self._standing())
                case ShowMean(shown):
                    self._around.show_mean(shown)
                case Keep(evaluation):
                    self._around.keep(evaluation)
                case Finish():
                    self._finish = command
                case _:
                    assert_never(command)

    # These three run on threads beside the loop; what they return, the loop tells the state.

    def _shuffle(self, epoch: int, without: int) -> Event:
        self._around.shuffle(epoch, without)
        return partial(self._state.order_ready, epoch, without)

    def _copy(self, draft: PendingCheckpoint | None) -> Event:
        bad = self._around.snapshots.copy(draft)
        if draft is not None and not bad:
            self._background.writes.submit(self._write, draft)
        return partial(self._state.snapshot_taken, bad)

    def _write(self, draft: PendingCheckpoint) -> Event:
        return partial(self._written, draft, draft.write())

    def _written(self, draft: PendingCheckpoint, failure: str, now: float) -> list[Command]:
        if not failure:
            self._around.record("checkpoint", draft.about)
        return self._state.checkpoint_written(failure, now)

    def _watch(self, pid: int) -> None:
        """Have the end of process `pid` reported; the kernel tells within a millisecond."""
        if pid in self._ends.values():  # a child that has attached
            return
        # It is gone already; or no descriptor is left, and it is lost when it falls silent.
        with suppress(OSError):
            pidfd = os.pidfd_open(pid)
            self._ends[pidfd] = pid
            self._around.end.watch(pidfd)

    def _is_watched(self, key: str) -> bool:
        """Whether the end of worker `key` will be reported, and why it came with it."""
        worker = self._state.workers.get(key)
        return worker is not None and worker.pid in self._ends.values()

    def _bury(self, pidfd: int) -> None:
        pid = self._ends.pop(pidfd)
        self._around.end.unwatch(pidfd)
        os.close(pidfd)
        cause = self._around.children.cause_of_death(pid)
        for key in [w.key for w in self._state.workers.values() if w.pid == pid]:
            self._carry_out(self._state.lose(key, cause, time.monotonic()))
        was = (w for w in self._state.roster.departed if w.pid == pid)
        worked = any(w.rows > 0 for w in was)
        if self._finish is None:
            given_up = self._around.children.died(pid, worked, time.monotonic())
            self._note([given_up] if given_up else [])

    def _note(self, changes: Iterable[Restart | GivenUp]) -> None:
        """Tell of workers that were started again, and of those that never will be."""
        for change in changes:
            match change:
                case Restart():
                    self._around.record("worker_restarted", asdict(change))
                    self._watch(change.pid)
                case GivenUp():
                    self._around.record("worker_given_up", asdict(change))

    def _kill(self, pid: int) -> None:
        """End a child or a process that has mapped our segments; no other is ever signalled.

        Returns when it can run, and so write, no more; its end is taken in like any other later.
        """
        for pidfd in [fd for fd, known in self._ends.items() if known == pid]:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            end = select.poll()
            end.register(pidfd, select.POLLIN)
            end.poll(KILLED_WITHIN_MS)  # longer only where the kernel itself is stuck

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Count Ctrl-C, SIGTERM and a closed terminal, where this thread may handle signals.

        The second goes to whoever handled Ctrl-C before, which raises KeyboardInterrupt as a rule.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def count(number: int, frame: FrameType | None) -> None:
            self._interrupts += 1
            if self._interrupts > 1:
                if callable(usual := before[signal.SIGINT]):
                    usual(number, frame)
                raise KeyboardInterrupt

        nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        ours = [s for s in ENDING_SIGNALS if not (nohup and s == signal.SIGHUP)]
        before = {s: signal.signal(s, count) for s in ours}
        try:
            yield
        finally:
            for number, handler in before.items():
                if signal.getsignal(number) is count:  # nobody has set another meanwhile
                    signal.signal(number, handler)
