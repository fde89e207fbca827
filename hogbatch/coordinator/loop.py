"""The coordinator's event loop: sockets, clock, exits of processes and signals.

It passes every event to the coordinator's state and carries out the commands that come back. It
makes no decisions.
"""

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from hogbatch.coordinator.adapters import Adapters
from hogbatch.coordinator.background import BackgroundTasks, Event
from hogbatch.coordinator.commands import Actions, Command, Finish, Kill, Record, Send, Shuffle
from hogbatch.coordinator.interrupts import Interrupts
from hogbatch.coordinator.workforce import Workforce
from hogbatch.events.event import WorkerGivenUp, WorkerRestarted
from hogbatch.events.records import RunTotals
from hogbatch.wire.messages import Hello, ToCoordinator

KILLED_WITHIN_MS = 200
MAX_RECEIVED = 1000


class Loop:
    """Runs one coordinator to its end, or until `interrupts` ask for it (default: the signals)."""

    def __init__(
        self,
        state: Workforce,
        adapters: Adapters,
        background: BackgroundTasks,
        interrupts: Interrupts | None = None,
        *,
        actions: Actions,
        orders: Callable[[], Iterable[Event]] = tuple,
    ) -> None:
        """`actions` are those of all commands about the model and its rows, of which slow ones run
        in the `background`. `orders` returns the events that the coordinator of all servers has
        ordered since the last call.
        """
        self._state = state
        self._adapters = adapters
        self._background = background
        self._orders = orders
        self._actions: Actions = {
            Send: self._send,
            Kill: self._kill,
            Shuffle: lambda it: background.shuffles.submit(self._shuffle, it),
            Record: lambda it: adapters.record(it.event),
            Finish: self._end,
            **actions,
        }
        # (seconds, worker, message): the last messages, for a crash report
        self.received: deque[tuple[float, str, ToCoordinator]] = deque(maxlen=MAX_RECEIVED)
        # pidfd → pid of all children and of all processes that have mapped our memory
        self._pidfds: dict[int, int] = {}
        self._interrupts = interrupts or Interrupts()
        self._finish: Finish | None = None

    def run(self) -> tuple[Finish, RunTotals]:
        """Run until the state commands Finish; return that command and the totals of the run.

        A second Ctrl-C raises KeyboardInterrupt.
        """
        adapters, state = self._adapters, self._state
        adapters.endpoint.watch(self._background.outcomes.fd)
        for pid in adapters.processes.pids():  # now, since some may never attach
            self._watch(pid)
        try:
            with self._interrupts.counted():
                self._execute(state.begin(time.monotonic()))
                while self._finish is None:
                    self._run_once(adapters.endpoint.wait(state.until_tick(time.monotonic())))
                self._background.finish()  # not after a second Ctrl-C: a write may take long
        finally:
            self._background.outcomes.close()
            for pidfd in self._pidfds:
                os.close(pidfd)
        return self._finish, state.totals(time.monotonic())

    def _run_once(self, ready: list[int]) -> None:
        """Handle the clock, then everything that has happened since the last call."""
        adapters, state = self._adapters, self._state
        # The clock comes first: if this process was stopped, deadlines are extended before messages
        # that arrived meanwhile are handled.
        self._execute(state.tick(time.monotonic()))
        for order in self._orders():
            self._execute(order(time.monotonic()))
        for key, message in adapters.endpoint.receive():
            self.received.append((time.monotonic(), key, message))
            if isinstance(message, Hello) and adapters.attached_by(message.pid):
                self._watch(message.pid)
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
        adapters.write_due()

    def _execute(self, commands: list[Command]) -> None:
        for command in commands:
            self._actions[type(command)](command)

    # Actions --------------------------------------------------------------------------------

    def _send(self, command: Send) -> None:
        """Send a message; a worker without a process that is watched is lost if it is gone."""
        key, worker = command.worker, self._state.workers.get(command.worker)
        sent = self._adapters.endpoint.send(key, command.message)
        # The exit of one that is watched will be reported, together with its cause.
        if not sent and (worker is None or worker.pid not in self._pidfds.values()):
            self._execute(self._state.lose(key, "is unreachable", time.monotonic()))

    def _kill(self, command: Kill) -> None:
        """Kill a child or a process that has mapped our segments; no other is ever signalled.

        Returns when it can no longer run, and so no longer write; its exit is handled later.
        """
        for pidfd in [fd for fd, known in self._pidfds.items() if known == command.pid]:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            exited = select.poll()
            exited.register(pidfd, select.POLLIN)
            exited.poll(KILLED_WITHIN_MS)  # it takes longer only if the kernel itself is stuck

    def _shuffle(self, command: Shuffle) -> Event:
        self._adapters.shuffle(command.epoch, command.without)
        return partial(self._state.order_ready, command.epoch, command.without)

    def _end(self, finish: Finish) -> None:
        self._finish = finish

    # Processes ------------------------------------------------------------------------------

    def _watch(self, pid: int) -> None:
        """Watch for the exit of process `pid`, which the kernel reports within a millisecond."""
        # A child that has attached meanwhile, or a worker that claims to be this process.
        if pid in self._pidfds.values() or pid == os.getpid():
            return
        # An error means that it has exited already, or that no descriptor is left. In the second
        # case it is lost when it sends no more messages.
        with suppress(OSError):
            pidfd = os.pidfd_open(pid)
            self._pidfds[pidfd] = pid
            self._adapters.endpoint.watch(pidfd)

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
            given_up = self._adapters.processes.died(pid, worked, time.monotonic())
            self._record_restarts([given_up] if given_up else [])

    def _record_restarts(self, changes: Iterable[WorkerRestarted | WorkerGivenUp]) -> None:
        """Record workers that were restarted, and those that will not be."""
        for change in changes:
            self._adapters.record(change)
            if isinstance(change, WorkerRestarted):
                self._watch(change.pid)
