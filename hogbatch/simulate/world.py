"""Simulation of everything around the coordinator's state: clock, network and processes."""

import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from random import Random

from hogbatch.coordinator.commands import (
    Actions,
    Command,
    Finish,
    Kill,
    Send,
    Shuffle,
    Snapshot,
)
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.coordinator.state import Coordinator
from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.worker import Link, SimulatedEngine, SimulatedWorker
from hogbatch.wire.messages import ToCoordinator

NOTICED_WITHIN_S = 0.01  # maximum time until the coordinator notices the exit of a process


class World(ABC):
    """The loop, the workers and their server, simulated.

    Subclasses add the actions of the other commands, which concern the model, to `actions`.
    """

    def __init__(self, state: Coordinator, rng: Random, queue: EventQueue | None = None) -> None:
        self.state, self.rng = state, rng
        self.actions: Actions = {
            Send: self._send,
            Kill: self._kill,
            Shuffle: self._shuffle,
            Snapshot: self._snapshot,
            Finish: self._end,
        }
        self.queue = EventQueue() if queue is None else queue
        self.processes: dict[int, SimulatedWorker] = {}  # alive, by pid
        self.finish: Finish | None = None
        self.messages: Counter[str] = Counter()
        self._keys: dict[str, SimulatedWorker] = {}
        self._task_ends: defaultdict[str, float] = defaultdict(float)  # by kind of task
        self._tick_at = math.inf  # the next one
        self._pids = 0
        self._pending = 0  # processes that will start, or whose exit is not noticed yet

    # What a subclass does ---------------------------------------------------------------------

    @abstractmethod
    def fence(self, number: int) -> int:
        """The fence of worker `number`."""

    @abstractmethod
    def write_order(self, epoch: int, without: int) -> float:
        """Write the row order of `epoch`, with the first `without` quarantined rows last.

        Returns the seconds that this takes.
        """

    @abstractmethod
    def copy_seconds(self) -> float:
        """Seconds from the command to take a snapshot until `copy` is called."""

    def copy(self) -> str | None:
        """Take a snapshot of a model; return the parameter that is not finite, if any."""
        return None

    # Running --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the coordinator."""
        self._tick_at = self.queue.now
        self._handle(self.state.begin)
        self._tick(self._tick_at)

    def run(self, until: float) -> None:
        """Run the simulation until the run is over, or until the time `until`."""
        while self.finish is None and self.queue.now < until and self.queue.step():
            pass

    def start(self, engine: SimulatedEngine, after: float = 0.0) -> None:
        """Start a worker after `after` seconds."""
        self._pending += 1

        def begin() -> None:
            self._pending -= 1
            self._pids += 1
            process = self.new_process(self._pids, engine)
            self.processes[process.pid] = self._keys[process.key] = process
            process.start()

        self.at(self.queue.now + after, begin)

    def new_process(self, pid: int, engine: SimulatedEngine) -> SimulatedWorker:
        """A worker that is not started."""
        return SimulatedWorker(self, pid, engine, Link(self.rng), Link(self.rng))

    def worker(self, key: str) -> SimulatedWorker:
        """The worker with this address, also if it has exited."""
        return self._keys[key]

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._handle(self.state.interrupt)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Run `action` at `time`."""
        self.queue.at(time, action)

    def deliver(self, time: float, action: Callable[[], None]) -> None:
        """Run `action`, which is an event for the coordinator, at `time`."""
        self.at(time, action)

    def _tick(self, at: float) -> None:
        if self._tick_at == at and self.finish is None:
            self._tick_at = math.inf
            self._handle(self.state.tick)
            if not self.processes and not self._pending and not self.state.workers:
                self._handle(lambda now: self.state.abandon("all workers have exited", now))

    def _schedule_tick(self) -> None:
        """Bring the next tick forward if the coordinator wants that."""
        at = self.queue.now + self.state.until_tick(self.queue.now)
        if at < self._tick_at:
            self._tick_at = at
            self.deliver(at, lambda: self._tick(at))

    # Environment of the workers --------------------------------------------------------------

    def send_to_coordinator(self, worker: SimulatedWorker, message: ToCoordinator) -> None:
        self.messages[type(message).__name__] += 1
        arrival = worker.outbox.arrival(self.queue.now)
        self.deliver(arrival, lambda: self._receive(worker, message))

    def _receive(self, worker: SimulatedWorker, message: ToCoordinator) -> None:
        self._handle(lambda now: self.state.receive(worker.key, message, now))

    def exited(self, worker: SimulatedWorker, cause: str | None) -> None:
        self.processes.pop(worker.pid, None)
        self._pending += 1
        noticed = self.queue.now + self.rng.uniform(0, NOTICED_WITHIN_S)
        self.deliver(noticed, lambda: self._notice_exit(worker, cause))

    def _notice_exit(self, worker: SimulatedWorker, cause: str | None) -> None:
        self._pending -= 1
        self._handle(lambda now: self.state.lose(worker.key, cause or "it has exited", now))

    # Commands of the coordinator -------------------------------------------------------------

    def _handle(self, event: Callable[[float], list[Command]]) -> None:
        if self.finish is None:
            for command in event(self.queue.now):
                self.carry_out(command)
            self._schedule_tick()

    def carry_out(self, command: Command) -> None:
        self.actions[type(command)](command)

    def _send(self, command: Send) -> None:
        worker, message = self._keys[command.worker], command.message
        if not worker.alive:
            self._handle(lambda now: self.state.lose(command.worker, "is unreachable", now))
            return
        self.messages[type(message).__name__] += 1
        self.queue.at(worker.inbox.arrival(self.queue.now), lambda: worker.receive(message))

    def _kill(self, command: Kill) -> None:
        if command.pid in self.processes:
            self.processes[command.pid].exit("killed by the coordinator")

    def _shuffle(self, command: Shuffle) -> None:
        epoch, without = command.epoch, command.without
        ready = partial(self.state.order_ready, epoch, without)
        self.background("shuffle", self.write_order(epoch, without), ready)

    def _end(self, finish: Finish) -> None:
        self.finish = finish

    def _snapshot(self, command: Snapshot) -> None:
        self.background("copy", self.copy_seconds(), partial(self._copy, command.saved))

    def _copy(self, saved: SavedState | None, now: float) -> list[Command]:
        """Check the model and copy it. Worlds without a disk do not write it with `saved`."""
        return self.state.snapshot_taken(self.copy(), now)

    def background(
        self, work: str, seconds: float, event: Callable[[float], list[Command]]
    ) -> None:
        """Pass `event` to the coordinator in `seconds`, after all other such `work`."""
        ended = max(self._task_ends[work], self.queue.now) + seconds
        self._task_ends[work] = ended
        self.deliver(ended, lambda: self._handle(event))
