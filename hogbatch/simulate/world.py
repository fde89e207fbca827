"""Simulation of everything around the coordinator's state: clock, network, processes, disk."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Generic, Protocol, TypeVar

from hogbatch.coordinator.commands import (
    Actions,
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
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.event import AnyEvent, WorkerParked, WorkerUnparked
from hogbatch.events.records import Evaluation, RunTotals
from hogbatch.simulate.audit import Audit
from hogbatch.simulate.engine import SimulatedEngine
from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.link_quality import LinkQuality
from hogbatch.simulate.simulated_model import SimulatedModel
from hogbatch.simulate.worker import SimulatedWorker
from hogbatch.wire.messages import Done, Hello, Lease, ToCoordinator, ToWorker


class Effects(Protocol):
    """Carries out commands; the counterpart of `coordinator.adapters.Adapters`.

    Methods that take time in a real run return the seconds until their result is known.
    """

    def fence(self, number: int) -> int:
        """The fence of worker `number`."""

    def revoke(self, number: int) -> None:
        """Raise the fence of worker `number`."""

    def shuffle(self, epoch: int, without: int) -> float:
        """Write the row order of `epoch`, with the first `without` quarantined rows last."""

    def quarantine(self, epoch: int, start: int, stop: int) -> None:
        """Exclude rows [start, stop) of the order of `epoch` from later epochs."""

    def copy_seconds(self) -> float:
        """Seconds until `copy` is called."""

    def copy(self) -> str | None:
        """Take a snapshot of the model; return the parameter that is not finite, if any."""

    def roll_back(self) -> None:
        """Restore the model from the last snapshot."""

    def record(self, event: AnyEvent) -> None:
        """Append an event to the event log."""

    def report(self, evaluation: Evaluation, totals: RunTotals) -> None:
        """Report an evaluation to the user."""

    def show_mean(self, shown: bool) -> None:
        """Replace the model by its moving mean, or restore the model."""

    def keep(self, evaluation: Evaluation | None) -> None:
        """Copy the parameters in their current state."""


E = TypeVar("E", bound=Effects)

DIRECT = LinkQuality()
NOTICED_WITHIN_S = 0.01  # maximum time until the coordinator notices the exit of a process


class World(Generic[E]):
    """The loop, the workers and their server, simulated.

    Its actions are those of a coordinator with one model; `actions` may be given others.
    """

    def __init__(
        self,
        state: Coordinator,
        effects: E,
        rng: Random,
        network: LinkQuality = DIRECT,
        restarts: int | None = 0,
        audit: Audit | None = None,
        queue: EventQueue | None = None,
        checkpoints: SimulatedModel | None = None,
    ) -> None:
        """`restarts` is the number of restarts of all workers together; None: unlimited. `audit`
        checks the run, if given. Without `checkpoints`, none are written.
        """
        self.state, self.effects, self.audit = state, effects, audit
        self.actions: Actions = {
            Send: self._send,
            Revoke: self._revoke,
            Kill: self._kill,
            Shuffle: self._shuffle,
            Quarantine: self._quarantine,
            Record: self._record,
            Finish: self._end,
            Snapshot: self._snapshot,
            RollBack: self._roll_back,
            Report: lambda it: effects.report(it.evaluation, self.state.totals(self.queue.now)),
            ShowMean: lambda it: effects.show_mean(it.shown),
            Keep: lambda it: effects.keep(it.evaluation),
        }
        self.network, self.restarts, self.rng = network, restarts, rng
        self.queue = EventQueue() if queue is None else queue
        self.processes: dict[int, SimulatedWorker] = {}  # alive, by pid
        self.finish: Finish | None = None
        self.coordinator_stopped_for = 0.0  # seconds
        self.left_for_good = 0  # workers that are not restarted
        self.messages: Counter[str] = Counter()
        self.lease_messages: Counter[int] = Counter()  # Lease and Done, by whole seconds
        self.all_messages: Counter[int] = Counter()
        self.events: list[tuple[float, str]] = []  # (seconds, description), for the user
        self._keys: dict[str, SimulatedWorker] = {}
        self._engines: dict[int, Callable[[], SimulatedEngine]] = {}  # by pid, to restart workers
        self._task_ends: defaultdict[str, float] = defaultdict(float)  # by kind of task
        self._life = 0  # number of times that the coordinator was killed
        self._stopped_until = 0.0
        self._tick_at = math.inf  # the next one
        self._checkpoints = checkpoints
        self._checkpoint: SavedState | None = None  # the last one
        self._pids = 0
        self._pending = 0  # processes that will start, or whose exit is not noticed yet
        self._restarts = 0

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
            process = SimulatedWorker(self, self._pids, engine(), self.network, self.rng)
            self.processes[process.pid] = self._keys[process.key] = process
            self._engines[process.pid] = engine
            process.start()

        self._in_this_life(after, begin)

    def worker(self, key: str) -> SimulatedWorker:
        """The worker with this address, also if it has exited."""
        return self._keys[key]

    def note(self, what: str) -> None:
        """Add an event to `events`."""
        self.events.append((self.queue.now, what))

    def stop_coordinator(self, seconds: float) -> None:
        """Stop the coordinator's process (SIGSTOP) for `seconds`."""
        self.coordinator_stopped_for += seconds
        self._stopped_until = max(self._stopped_until, self.queue.now + seconds)

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._handle(self.state.interrupt)

    def kill_coordinator(
        self, resumed: Callable[[SavedState | None], Coordinator], after: float
    ) -> SavedState | None:
        """Kill the coordinator, and its workers with it; resume the run `after` seconds later.

        `resumed` creates the coordinator that continues from the last checkpoint, which is
        returned; without one, training begins again.
        """
        self._life += 1
        for process in self.processes.values():
            process.alive = False
        self.processes.clear()
        self._keys.clear()
        self._task_ends.clear()
        self._pending = 0
        saved = self._checkpoint
        self.state = resumed(saved)
        if self.audit:
            self.audit.resume(saved)
        self._in_this_life(after, self.begin)
        return saved

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
        self._count(message)
        life = self._life
        for arrival in worker.outbox.arrivals(self.queue.now, isinstance(message, Hello)):
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

    @property
    def identity(self) -> tuple[str, str]:
        """The version of hogbatch and the fingerprint of the data, as in Hello."""
        identity = self.state.plan.identity
        return identity.package, identity.fingerprint

    def fence(self, number: int) -> int:
        return self.effects.fence(number)

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
            self._execute(event(self.queue.now))
            self._schedule_tick()

    def _execute(self, commands: list[Command]) -> None:
        for command in commands:
            if self.audit:
                self.audit.commanded(command, self)
            self.actions[type(command)](command)

    def _send(self, command: Send) -> None:
        worker, message = self._keys[command.worker], command.message
        if not worker.alive:
            self._handle(lambda now: self.state.lose(command.worker, "is unreachable", now))
            return
        self._count(message)
        for arrival in worker.inbox.arrivals(self.queue.now):
            self.queue.at(arrival, lambda: worker.receive(message))

    def _revoke(self, command: Revoke) -> None:
        self.effects.revoke(command.number)
        self._end_server(command.number)

    def _kill(self, command: Kill) -> None:
        if command.pid in self.processes:
            self.processes[command.pid].exit("killed by the coordinator")

    def _shuffle(self, command: Shuffle) -> None:
        epoch, without = command.epoch, command.without
        ready = partial(self.state.order_ready, epoch, without)
        self.background("shuffle", self.effects.shuffle(epoch, without), ready)

    def _quarantine(self, rows: Quarantine) -> None:
        self.effects.quarantine(rows.epoch, rows.start, rows.stop)
        self.note(f"rows {rows.start}..{rows.stop} of epoch {rows.epoch} are quarantined")

    def _record(self, command: Record) -> None:
        self.effects.record(command.event)
        match command.event:
            case WorkerParked(worker, reason):
                self.note(f"{worker} is parked: {reason}")
            case WorkerUnparked(worker):
                self.note(f"{worker} trains")

    def _end(self, finish: Finish) -> None:
        self.finish = finish

    def _snapshot(self, command: Snapshot) -> None:
        self.background("copy", self.effects.copy_seconds(), partial(self._copy, command.saved))

    def _roll_back(self, _: RollBack) -> None:
        self.effects.roll_back()
        self.note("rolled back")

    def _count(self, message: ToCoordinator | ToWorker) -> None:
        self.messages[type(message).__name__] += 1
        self.all_messages[int(self.queue.now)] += 1
        if isinstance(message, Lease | Done):
            self.lease_messages[int(self.queue.now)] += 1

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

    def _end_server(self, number: int) -> None:
        """End the server with this number: it must not take part in merges any more."""
        for process in list(self.processes.values()):
            if process.number == number and process.engine.device == "server":
                process.exit("ended by the coordinator")

    def _copy(self, saved: SavedState | None, now: float) -> list[Command]:
        """Check the model and copy it; with `saved`, also begin to write it."""
        not_finite_at = self.effects.copy()
        if self.audit:
            self.audit.copied(finite=not_finite_at is None)
        if saved is not None and self._checkpoints is not None and not_finite_at is None:
            write = partial(self._write, self._checkpoints, saved)
            self.background("write", self._checkpoints.write_seconds(), write)
        return self.state.snapshot_taken(not_finite_at, now)

    def _write(self, checkpoints: SimulatedModel, saved: SavedState, now: float) -> list[Command]:
        failure = checkpoints.write(saved)
        if failure is None:
            self._checkpoint = saved
        return self.state.checkpoint_written(failure, now)
