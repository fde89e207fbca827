"""The coordinator's hands: sockets, clock, process ends and signals around the pure state.

Every event goes into :class:`Coordinator`, every command that comes back is carried out here; no
decision is taken.
"""

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Protocol, assert_never

from hogbatch.coordinator.plan import (
    Command,
    Finish,
    Keep,
    Kill,
    Record,
    Report,
    Revoke,
    Send,
    ShowMean,
    Shuffle,
)
from hogbatch.coordinator.state import Coordinator
from hogbatch.store.fence import Fences
from hogbatch.store.handover import Handover
from hogbatch.telemetry.records import Evaluation, Standing
from hogbatch.wire.ends import CoordinatorEnd

TICK_S = 0.05
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Restart:
    """A worker that was started again."""

    runs_on: str  # as in Hello.name: "gpu:0"
    pid: int  # of the new process
    times: int  # so far
    most: int


class Children(Protocol):
    """The worker processes that this run has started itself."""

    def pids(self) -> list[int]:
        """Those of this server, whose ends are to be watched."""

    def restart(self, pid: int) -> Restart | None:
        """Start the worker again that process `pid` was, if a new process may mend what failed."""

    def all_ended(self) -> str | None:
        """Why, if some were started and none runs any more."""

    def cause_of_death(self, pid: int) -> str:
        """What is known of the end of process `pid`."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything outside the coordinator's mind, as the run has set it up."""

    end: CoordinatorEnd
    handover: Handover
    fences: Fences
    children: Children
    shuffle: Callable[[int], None]  # writes the order of an epoch; called on another thread
    record: Callable[[str, Mapping[str, object]], None]
    report: Callable[[Evaluation, Standing], None]
    show_mean: Callable[[bool], None]
    keep: Callable[[Evaluation | None], None]


class Loop:
    """Runs one coordinator to its end."""

    def __init__(self, state: Coordinator, around: Surroundings) -> None:
        self._state = state
        self._around = around
        self._ends: dict[int, int] = {}  # pidfd → pid of each child and all who have mapped us
        self._ready_orders: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._shuffles: list[threading.Thread] = []  # that may still run
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._interrupts = 0
        self._finish: Finish | None = None

    def run(self) -> tuple[Finish, Standing]:
        """Carry on until the state says Finish; return how and where the run stood then.

        A second Ctrl-C raises KeyboardInterrupt.
        """
        around, state = self._around, self._state
        around.end.watch(self._bell)
        around.end.watch(around.handover.fileno())
        for pid in around.children.pids():  # before they attach, for they may never do so
            self._watch(pid)
        try:
            with self._signals():
                self._carry_out(state.begin(time.monotonic()))
                while self._finish is None:
                    self._turn(around.end.wait(TICK_S))
        finally:
            for shuffle in self._shuffles:  # each rings the bell at its end
                shuffle.join()
            for fd in (*self._ends, self._bell):
                os.close(fd)
        return self._finish, self._standing()

    def _standing(self) -> Standing:
        return self._state.standing(time.monotonic())

    def _turn(self, ready: list[int]) -> None:
        """One round: everything that has happened, then the clock."""
        around, state = self._around, self._state
        for peer in around.handover.serve() if around.handover.fileno() in ready else ():
            self._watch(peer.pid)
        for key, message in around.end.receive():
            self._carry_out(state.receive(key, message, time.monotonic()))
        for pidfd in [fd for fd in ready if fd in self._ends]:
            self._bury(pidfd)
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        while not self._ready_orders.empty():
            epoch = self._ready_orders.get_nowait()
            self._carry_out(state.order_ready(epoch, time.monotonic()))
        if self._interrupts:
            self._carry_out(state.interrupt(time.monotonic()))
        self._carry_out(state.tick(time.monotonic()))
        if not state.workers and (why := around.children.all_ended()):
            self._carry_out(state.abandon(why, time.monotonic()))

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Send(worker, message):
                    if not self._around.end.send(worker, message):
                        lost = self._state.lose(worker, "cannot be reached", time.monotonic())
                        self._carry_out(lost)
                case Revoke(number):
                    self._around.fences.revoke(number)
                case Kill(pid):
                    self._kill(pid)
                case Shuffle(epoch):
                    self._start_shuffle(epoch)
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

    def _start_shuffle(self, epoch: int) -> None:
        self._shuffles = [shuffle for shuffle in self._shuffles if shuffle.is_alive()]
        self._shuffles.append(threading.Thread(target=self._shuffle, args=(epoch,), daemon=True))
        self._shuffles[-1].start()

    def _shuffle(self, epoch: int) -> None:
        self._around.shuffle(epoch)
        self._ready_orders.put(epoch)
        os.eventfd_write(self._bell, 1)

    def _watch(self, pid: int) -> None:
        """Have the end of process `pid` reported; the kernel tells within a millisecond."""
        if pid in self._ends.values():  # a child that has attached
            return
        with suppress(ProcessLookupError):  # it is gone already; nothing was handed to it
            pidfd = os.pidfd_open(pid)
            self._ends[pidfd] = pid
            self._around.end.watch(pidfd)

    def _bury(self, pidfd: int) -> None:
        pid = self._ends.pop(pidfd)
        self._around.end.unwatch(pidfd)
        os.close(pidfd)
        cause = self._around.children.cause_of_death(pid)
        for key in [w.key for w in self._state.workers.values() if w.pid == pid]:
            self._carry_out(self._state.lose(key, cause, time.monotonic()))
        if self._finish is None and (restart := self._around.children.restart(pid)):
            self._around.record("worker_restarted", asdict(restart))
            self._watch(restart.pid)

    def _kill(self, pid: int) -> None:
        """End a child or a process that has mapped our segments; no other is ever signalled."""
        for pidfd in [fd for fd, known in self._ends.items() if known == pid]:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Count Ctrl-C, SIGTERM and a closed terminal, where this thread may handle signals."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def count(*_: object) -> None:
            self._interrupts += 1
            if self._interrupts > 1:
                raise KeyboardInterrupt

        before = {s: signal.signal(s, count) for s in ENDING_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
