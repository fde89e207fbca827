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
from hogbatch.simulate.audit import Audit
from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.worker import Link, SimulatedEngine, SimulatedWorker
from hogbatch.wire.messages import Hello, ToCoordinator

DELAY_S = 50e-6  # mean of a message over ZeroMQ on one server
NOTICED_WITHIN_S = 0.01  # maximum time until the coordinator notices the exit of a process


class World(ABC):
    """The loop, the workers and their server, simulated.

    Subclasses add the actions of the other commands, which concern the model, to `actions`.
    """

    def __init__(
        self,
        state: Coordinator,
        rng: Random,
        *,
        delay: float = DELAY_S,
        loss: float = 0.0,
        restarts: int | None = 0,
        audit: Audit | None = None,
        queue: EventQueue | None = None,
    ) -> None:
        """`delay` and `loss` of messages are those of `Link`. `restarts` is the number of restarts
        of all workers together; None: unlimited. `audit` checks the run, if given.
        """
        self.state, self.rng, self.audit, self.restarts = state, rng, audit, restarts
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
        self.left_for_good = 0  # workers that are not restarted
        self.messages: Counter[str] = Counter()
        self._new_link = partial(Link, delay, loss, rng)
        self._keys: dict[str, SimulatedWorker] = {}
        self._engines: dict[int, Callable[[], SimulatedEngine]] = {}  # by pid, to restart workers
        self._task_ends: defaultdict[str, float] = defaultdict(float)  # by kind of task
        self._life = 0  # number of times that the coordinator was killed
        self._stopped_until = 0.0
        self._tick_at = math.inf  # the next one
        self._pids = 0
        self._pending = 0  # processes that will start, or whose exit is not noticed yet
        self._restarts = 0

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

    @abstractmethod
    def copy(self) -> str | None:
        """Take a snapshot of the model; return the parameter that is not finite, if any."""

    @abstractmethod
    def save(self, saved: SavedState) -> None:
        """Begin to write the snapshot that was taken last."""

    # Running --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the coordinator, or a new one that resumes from the last checkpoint."""
        self._tick_at = self.queue.now
        self._handle(self.state.begin)
        self._tick(self._life, self._tick_at)

    def run(self, until: float) -> None:
        """Run the simulation until the run is over, or until the time `until`."""
        while self.finish is None and self.queue.now < until and self.queue.step():
            pass

    def start(self, engine: Callable[[], SimulatedEngine], after: float = 0.0) -> None:
        """Start a worker after `after` seconds; a restart creates another `engine`."""
        self._pending += 1

        def begin() -> None:
            self._pending -= 1
            self._pids += 1
            links = self._new_link(), self._new_link()
            process = SimulatedWorker(self, self._pids, engine(), *links)
            self.processes[process.pid] = self._keys[process.key] = process
            self._engines[process.pid] = engine
            process.start()

        self._in_this_life(after, begin)

    def worker(self, key: str) -> SimulatedWorker:
        """The worker with this address, also if it has exited."""
        return self._keys[key]

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._handle(self.state.interrupt)

    def _in_this_life(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` in `seconds`, unless the coordinator was killed by then."""
        life = self._life
        self.queue.after(seconds, lambda: action() if self._life == life else None)

    def _tick(self, life: int, at: float) -> None:
        if self._life == life and self._tick_at == at and self.finish is None:
            self._tick_at = math.inf
            if self.audit:
                self.audit.check(self.state, self.queue.now)
            self._handle(self.state.tick)
            if not self.processes and not self._pending and not self.state.workers:
                self._handle(lambda now: self.state.abandon("all workers have exited", now))

    def _schedule_tick(self) -> None:
        """Bring the next tick forward if the coordinator wants that; not while it is stopped."""
        now, life = self.queue.now, self._life
        at = max(now + self.state.until_tick(now), self._stopped_until)
        if at < self._tick_at:
            self._tick_at = at
            self.queue.at(at, lambda: self._tick(life, at))

    # Environment of the workers --------------------------------------------------------------

    def send_to_coordinator(self, worker: SimulatedWorker, message: ToCoordinator) -> None:
        self.messages[type(message).__name__] += 1
        life = self._life
        arrival = worker.outbox.arrival(self.queue.now, isinstance(message, Hello))
        if arrival is not None:
            self.queue.at(arrival, lambda: self._receive(worker, message, life))

    def _receive(self, worker: SimulatedWorker, message: ToCoordinator, life: int) -> None:
        if self._life != life or self.finish is not None:
            return
        if self.queue.now < self._stopped_until:
            self.queue.at(self._stopped_until, lambda: self._receive(worker, message, life))
            return
        if self.audit:
            self.audit.received(worker.key, message)
        self._handle(lambda now: self.state.receive(worker.key, message, now))

    def reachable(self, key: str) -> bool:
        return self._keys[key].alive

    def exited(self, worker: SimulatedWorker, cause: str | None) -> None:
        self.processes.pop(worker.pid, None)
        self._pending += 1
        self._in_this_life(
            self.rng.uniform(0, NOTICED_WITHIN_S), lambda: self._notice_exit(worker, cause)
        )

    def _notice_exit(self, worker: SimulatedWorker, cause: str | None) -> None:
        if self.finish is not None:
            return
        if self.queue.now < self._stopped_until:
            wait = self._stopped_until - self.queue.now
            self._in_this_life(wait, lambda: self._notice_exit(worker, cause))
            return
        self._pending -= 1
        self.left_for_good += cause is None
        self._handle(lambda now: self.state.lose(worker.key, cause or "it has exited", now))
        if cause is not None and (self.restarts is None or self._restarts < self.restarts):
            self._restarts += 1
            self.start(self._engines[worker.pid], 0.1 if worker.finished else 1.0)

    # Commands of the coordinator -------------------------------------------------------------

    def _handle(self, event: Callable[[float], list[Command]]) -> None:
        if self.finish is None:
            for command in event(self.queue.now):
                if self.audit:
                    self.audit.commanded(command, self)
                self.actions[type(command)](command)
            self._schedule_tick()

    def _send(self, command: Send) -> None:
        worker, message = self._keys[command.worker], command.message
        if not worker.alive:
            self._handle(lambda now: self.state.lose(command.worker, "is unreachable", now))
            return
        self.messages[type(message).__name__] += 1
        arrival = worker.inbox.arrival(self.queue.now)
        if arrival is not None:
            self.queue.at(arrival, lambda: worker.receive(message))

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
        """Check the model and copy it; with `saved`, also begin to write it."""
        not_finite_at = self.copy()
        if saved is not None and not_finite_at is None:
            self.save(saved)
        return self.state.snapshot_taken(not_finite_at, now)

    def background(
        self, work: str, seconds: float, event: Callable[[float], list[Command]]
    ) -> None:
        """Pass `event` to the coordinator in `seconds`, after all other such `work`."""

        def report() -> None:
            if self.queue.now < self._stopped_until:
                self._in_this_life(self._stopped_until - self.queue.now, report)
            else:
                self._handle(event)

        ended = max(self._task_ends[work], self.queue.now) + seconds
        self._task_ends[work] = ended
        self._in_this_life(ended - self.queue.now, report)
