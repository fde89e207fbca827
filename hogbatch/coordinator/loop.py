"""The coordinator's event loop: sockets, clock, exits of processes and signals.

It passes every event to :class:`Coordinator` and carries out the commands that come back. It makes
no decisions.
"""

import os
import select
import signal
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import assert_never

from hogbatch.coordinator.adapters import Adapters, CheckpointAdapter, NotRestarted, Restarted
from hogbatch.coordinator.background import BackgroundTasks, Event
from hogbatch.coordinator.commands import (
    Answer,
    Command,
    Finish,
    Keep,
    Kill,
    LimitRestarts,
    LoadServer,
    MergeStep,
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
from hogbatch.coordinator.interrupts import Interrupts
from hogbatch.coordinator.state import Coordinator
from hogbatch.coordinator.supplied import SuppliedCoordinator
from hogbatch.telemetry.records import RunTotals
from hogbatch.wire.messages import ToCoordinator

KILLED_WITHIN_MS = 200
MAX_RECEIVED = 1000


class Loop:
    """Runs one coordinator to its end, or until `interrupts` ask for it (default: the signals)."""

    def __init__(
        self,
        state: Coordinator | SuppliedCoordinator,
        adapters: Adapters,
        interrupts: Interrupts | None = None,
    ) -> None:
        self._state = state
        self._adapters = adapters
        # (seconds, worker, message): the last messages, for a crash report
        self.received: deque[tuple[float, str, ToCoordinator]] = deque(maxlen=MAX_RECEIVED)
        # pidfd → pid of all children and of all processes that have mapped our memory
        self._pidfds: dict[int, int] = {}
        self._background = BackgroundTasks()
        self._interrupts = interrupts or Interrupts()
        self._finish: Finish | None = None

    def run(self) -> tuple[Finish, RunTotals]:
        """Run until the state commands Finish; return that command and the totals of the run.

        A second Ctrl-C raises KeyboardInterrupt.
        """
        adapters, state = self._adapters, self._state
        adapters.endpoint.watch(self._background.wakeup.fd)
        if adapters.segment_server is not None:
            adapters.endpoint.watch(adapters.segment_server.fileno())
        for pid in adapters.processes.pids():  # now, since some may never attach
            self._watch(pid)
        try:
            with self._interrupts.counted():
                self._execute(state.begin(time.monotonic()))
                while self._finish is None:
                    self._run_once(adapters.endpoint.wait(state.until_tick(time.monotonic())))
                self._background.finish()  # not after a second Ctrl-C: a write may take long
        finally:
            self._background.wakeup.close()
            for pidfd in self._pidfds:
                os.close(pidfd)
        return self._finish, self._totals()

    def _totals(self) -> RunTotals:
        return self._state.totals(time.monotonic())

    def _run_once(self, ready: list[int]) -> None:
        """Handle the clock, then everything that has happened since the last call."""
        adapters, state = self._adapters, self._state
        # The clock comes first: if this process was stopped, deadlines are extended before messages
        # that arrived meanwhile are handled.
        self._execute(state.tick(time.monotonic()))
        server = adapters.segment_server
        if server is not None and server.fileno() in ready:
            for peer in server.serve():
                self._watch(peer.pid)
        if adapters.upstream is not None:
            assert isinstance(state, SuppliedCoordinator), "only it takes rows from upstream"
            for order in adapters.upstream.receive():
                self._execute(state.order(order, time.monotonic()))
        for key, message in adapters.endpoint.receive():
            self.received.append((time.monotonic(), key, message))
            self._execute(state.receive(key, message, time.monotonic()))
        for pidfd in [fd for fd in ready if fd in self._pidfds]:
            self._handle_exit(pidfd)
        for event in self._background.events():
            self._execute(event(time.monotonic()))
        if self._interrupts.count:
            self._execute(state.interrupt(time.monotonic(), self._interrupts.reason))
        if self._finish is None and not self._interrupts.count:  # no restarts in a run that ends
            self._record_restarts(adapters.processes.start_due(time.monotonic()))
        if not state.workers and (why := adapters.processes.all_ended()):
            self._execute(state.abandon(why, time.monotonic()))

    def _execute(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Send(worker, message):
                    if not self._adapters.endpoint.send(worker, message) and not self._is_watched(
                        worker
                    ):
                        lost = self._state.lose(worker, "is unreachable", time.monotonic())
                        self._execute(lost)
                case Revoke(number):
                    self._adapters.fences.revoke(number)
                case Kill(pid):
                    self._kill(pid)
                case Shuffle(epoch, without):
                    self._background.shuffles.submit(self._shuffle, epoch, without)
                case Quarantine(epoch, start, stop):
                    self._adapters.quarantine(epoch, start, stop)
                case Snapshot(saved):
                    draft = None if saved is None else self._adapters.snapshots.draft(saved)
                    self._background.copies.submit(self._copy, draft)
                case RollBack():
                    self._adapters.snapshots.roll_back()
                case Record(event, fields):
                    self._adapters.record(event, fields)
                case Report(evaluation):
                    self._adapters.report(evaluation, self._totals())
                case ShowMean(shown):
                    self._adapters.show_mean(shown)
                case Keep(evaluation):
                    self._adapters.keep(evaluation)
                case LoadServer(worker, source):
                    self._background.exchanges.submit(self._load, worker, source)
                case LimitRestarts(worker, reason):
                    assert self._adapters.servers is not None, "only servers have a limit"
                    self._adapters.servers.limit_restarts(worker, reason)
                case Answer(message):
                    assert self._adapters.upstream is not None, "it answers to upstream only"
                    self._adapters.upstream.send(message)
                case MergeStep():
                    assert self._adapters.upstream is not None, "upstream has asked for it"
                    self._adapters.upstream.interrupt_exchange()
                    self._background.exchanges.submit(self._exchange, command)
                case Finish():
                    self._finish = command
                case _:
                    assert_never(command)

    # These run on background threads; the loop passes the events they return to the state.

    def _shuffle(self, epoch: int, without: int) -> Event:
        self._adapters.shuffle(epoch, without)
        return partial(self._state.order_ready, epoch, without)

    def _copy(self, draft: CheckpointAdapter | None) -> Event:
        bad = self._adapters.snapshots.copy(draft)
        if draft is not None and not bad:
            self._background.writes.submit(self._write, draft)
        return partial(self._state.snapshot_taken, bad)

    def _write(self, draft: CheckpointAdapter) -> Event:
        return partial(self._written, draft, draft.write())

    def _written(self, draft: CheckpointAdapter, failure: str, now: float) -> list[Command]:
        if not failure:
            self._adapters.record("checkpoint", draft.about)
        return self._state.checkpoint_written(failure, now)

    def _load(self, worker: str, source: str) -> Event:
        state, servers = self._state, self._adapters.servers
        assert servers is not None and isinstance(state, Coordinator), "only it has servers"
        return partial(state.model_written, worker, servers.load(worker, source))

    def _exchange(self, asked: MergeStep) -> Event:
        state, upstream = self._state, self._adapters.upstream
        assert upstream is not None and isinstance(state, SuppliedCoordinator)
        return partial(state.exchanged, asked, upstream.exchange(asked))

    def _watch(self, pid: int) -> None:
        """Watch for the exit of process `pid`, which the kernel reports within a millisecond."""
        if pid in self._pidfds.values():  # a child that has attached meanwhile
            return
        # An error means that it has exited already, or that no descriptor is left. In the second
        # case it is lost when it sends no more messages.
        with suppress(OSError):
            pidfd = os.pidfd_open(pid)
            self._pidfds[pidfd] = pid
            self._adapters.endpoint.watch(pidfd)

    def _is_watched(self, key: str) -> bool:
        """Whether the exit of worker `key` will be reported, together with its cause."""
        worker = self._state.workers.get(key)
        return worker is not None and worker.pid in self._pidfds.values()

    def _handle_exit(self, pidfd: int) -> None:
        pid = self._pidfds.pop(pidfd)
        self._adapters.endpoint.unwatch(pidfd)
        os.close(pidfd)
        cause = self._adapters.processes.cause_of_death(pid)
        for key in [w.key for w in self._state.workers.values() if w.pid == pid]:
            self._execute(self._state.lose(key, cause, time.monotonic()))
        departed = (w for w in self._state.roster.departed if w.pid == pid)
        worked = any(worker.rows > 0 for worker in departed)
        if self._finish is None:
            not_restarted = self._adapters.processes.died(pid, worked, time.monotonic())
            self._record_restarts([not_restarted] if not_restarted else [])

    def _record_restarts(self, changes: Iterable[Restarted | NotRestarted]) -> None:
        """Record workers that were restarted, and those that will not be."""
        for change in changes:
            match change:
                case Restarted():
                    self._adapters.record("worker_restarted", asdict(change))
                    self._watch(change.pid)
                case NotRestarted():
                    self._adapters.record("worker_given_up", asdict(change))

    def _kill(self, pid: int) -> None:
        """Kill a child or a process that has mapped our segments; no other is ever signalled.

        Returns when it can no longer run, and so no longer write; its exit is handled later.
        """
        for pidfd in [fd for fd, known in self._pidfds.items() if known == pid]:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            exited = select.poll()
            exited.register(pidfd, select.POLLIN)
            exited.poll(KILLED_WITHIN_MS)  # it takes longer only if the kernel itself is stuck
