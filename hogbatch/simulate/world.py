"""Simulation of everything around the coordinator's state: clock, network, processes, disk."""

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import assert_never

from hogbatch.coordinator.commands import (
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
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.coordinator.state import Coordinator
from hogbatch.policy.base import BatchPolicy
from hogbatch.simulate.audit import Audit
from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.link_quality import LinkQuality
from hogbatch.simulate.speed import Speed
from hogbatch.simulate.worker import SimulatedWorker
from hogbatch.wire.messages import Done, Hello, ToCoordinator, ToWorker, Work

TICK_S = 0.05
NOTICED_WITHIN_S = 0.01  # maximum time until the coordinator notices the exit of a process


@dataclass(frozen=True, slots=True)
class Conditions:
    """Quality of the simulated environment."""

    network: LinkQuality = field(default_factory=LinkQuality)
    shuffle_seconds: float = 1e-3  # maximum, as for the next two
    copy_seconds: float = 1e-3
    write_seconds: float = 1e-3
    disk_full: float = 0.0  # probability that a checkpoint cannot be written
    restarts: int | None = 0  # of all workers together; None: unlimited
    bad_rows: int = 0  # of the training set, which kill workers that train on them


class World:
    """The loop, the workers and their server, simulated. `audit` checks the run, if given."""

    def __init__(
        self,
        plan: Plan,
        policy: Callable[[], BatchPolicy],
        conditions: Conditions,
        seed: int,
        audit: Audit | None = None,
    ) -> None:
        self.plan, self.policy, self.conditions, self.audit = plan, policy, conditions, audit
        self.queue = EventQueue()
        self.package = plan.identity.package
        self.rng = Random(seed)
        self.state = Coordinator(plan, policy())
        self.processes: dict[int, SimulatedWorker] = {}  # alive, by pid
        self.finish: Finish | None = None
        self.corrupted = False
        self.coordinator_stopped_for = 0.0  # seconds
        self.left_for_good = 0  # workers that are not restarted
        self.messages: Counter[str] = Counter()
        self.lease_messages: Counter[int] = Counter()  # Work and Done, by whole seconds
        self.all_messages: Counter[int] = Counter()
        self.events: list[tuple[float, str]] = []  # (seconds, description), for the user
        self._seed = seed
        self._keys: dict[str, SimulatedWorker] = {}
        self._fences: Counter[int] = Counter()
        self._task_ends: defaultdict[str, float] = defaultdict(float)  # by kind of task
        self._life = 0  # number of times that the coordinator was killed
        self._stopped_until = 0.0
        self._checkpoint: SavedState | None = None
        self._quarantined: list[tuple[int, list[int]]] = []  # rows, and the bad ones among them
        self._pids = 0
        self._pending = 0  # processes that will start, or whose exit is not noticed yet
        self._restarts = 0

    # Running --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the coordinator, or a new one that resumes from the last checkpoint."""
        self._handle(self.state.begin)
        self._tick(self._life)

    def run(self, until: float) -> None:
        """Run the simulation until the run is over, or until the time `until`."""
        while self.finish is None and self.queue.now < until and self.queue.step():
            pass

    def start(self, speed: Speed, after: float = 0.0) -> None:
        """Start a worker after `after` seconds."""
        self._pending += 1

        def begin() -> None:
            self._pending -= 1
            self._pids += 1
            process = SimulatedWorker(self, self._pids, speed, self.conditions.network, self.rng)
            self.processes[process.pid] = self._keys[process.key] = process
            process.start()

        self._in_this_life(after, begin)

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

    def kill_coordinator(self, after: float) -> None:
        """Kill the coordinator, and its workers with it; resume the run `after` seconds later."""
        self._life += 1
        for process in self.processes.values():
            process.alive = False
        self.processes.clear()
        self._keys.clear()
        self._fences.clear()
        self._task_ends.clear()
        self._pending = 0
        self.corrupted = False
        saved = self._checkpoint
        while self._quarantined and self._rows_quarantined() > (saved.quarantined if saved else 0):
            self._quarantined.pop()
        if saved is None:
            self.state = Coordinator(self.plan, self.policy())
        else:
            self.state = Coordinator.resumed(self.plan, self.policy(), saved)
        if self.audit:
            self.audit.resume(saved)
        self._in_this_life(after, self.begin)

    def _rows_quarantined(self) -> int:
        return sum(rows for rows, _ in self._quarantined)

    def _in_this_life(self, seconds: float, action: Callable[[], None]) -> None:
        """Run `action` in `seconds`, unless the coordinator was killed by then."""
        life = self._life
        self.queue.after(seconds, lambda: action() if self._life == life else None)

    def _tick(self, life: int) -> None:
        if self._life == life and self.finish is None:
            if self.audit:
                self.audit.check(self.state, self.queue.now)
            self._handle(self.state.tick)
            if not self.processes and not self._pending and not self.state.workers:
                self._handle(lambda now: self.state.abandon("all workers have exited", now))
            pause = max(TICK_S, self._stopped_until - self.queue.now)
            self.queue.after(pause, lambda: self._tick(life))

    # Environment of the workers --------------------------------------------------------------

    def send(self, worker: SimulatedWorker, message: ToCoordinator) -> None:
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

    def fence(self, number: int) -> int:
        return self._fences[number]

    def reachable(self, key: str) -> bool:
        return self._keys[key].alive

    def deadly_row(self, work: Work) -> int | None:
        if work.task != "train" or not self.conditions.bad_rows:
            return None
        places = self._bad_places(work.epoch, self.plan.train_rows - self._epoch_rows(work.epoch))
        return min((row for row in places if work.start <= row < work.stop), default=None)

    def _epoch_rows(self, epoch: int) -> int:
        return self.state.epochs.rows.rows if epoch == self.state.epoch else self.plan.train_rows

    def _bad_places(self, epoch: int, without: int) -> dict[int, int]:
        """Places of the bad rows in the order of `epoch`, without quarantined ones: place → row."""
        last, gone = self.plan.train_rows - without, set[int]()
        for rows, bad in self._quarantined:
            gone.update(bad if without > 0 else ())
            without -= rows
        return {
            Random(f"{self._seed} {row} {epoch}").randrange(max(1, last)): row
            for row in range(self.conditions.bad_rows)
            if row not in gone
        }

    def exited(self, worker: SimulatedWorker, cause: str) -> None:
        self.processes.pop(worker.pid, None)
        self._pending += 1
        self._in_this_life(
            self.rng.uniform(0, NOTICED_WITHIN_S), lambda: self._notice_exit(worker, cause)
        )

    def _notice_exit(self, worker: SimulatedWorker, cause: str) -> None:
        if self.finish is not None:
            return
        if self.queue.now < self._stopped_until:
            wait = self._stopped_until - self.queue.now
            self._in_this_life(wait, lambda: self._notice_exit(worker, cause))
            return
        self._pending -= 1
        self.left_for_good += not cause
        self._handle(lambda now: self.state.lose(worker.key, cause or "it has exited", now))
        left = self.conditions.restarts
        if cause and (left is None or self._restarts < left):
            self._restarts += 1
            self.start(worker.speed, 0.1 if worker.finished else 1.0)

    # Commands of the coordinator -------------------------------------------------------------

    def _handle(self, event: Callable[[float], list[Command]]) -> None:
        if self.finish is None:
            self._execute(event(self.queue.now))

    def _execute(self, commands: list[Command]) -> None:
        for command in commands:
            if self.audit:
                self.audit.commanded(command, self)
            match command:
                case Send():
                    self._send(command)
                case Revoke(number):
                    self._fences[number] += 1
                case Kill(pid):
                    if pid in self.processes:
                        self.processes[pid].exit("killed by the coordinator")
                case Shuffle(epoch, without):
                    ready = partial(self.state.order_ready, epoch, without)
                    self._background("shuffle", self.conditions.shuffle_seconds, ready)
                case Quarantine(epoch, start, stop):
                    places = self._bad_places(epoch, self.plan.train_rows - self._epoch_rows(epoch))
                    bad = [row for place, row in places.items() if start <= place < stop]
                    self._quarantined.append((stop - start, bad))
                    self.note(f"rows {start}..{stop} of epoch {epoch} are quarantined")
                case Snapshot(saved):
                    self._background(
                        "copy", self.conditions.copy_seconds, partial(self._copy, saved)
                    )
                case RollBack():
                    self.corrupted = False
                    self.note("rolled back")
                case Finish():
                    self.finish = command
                case Record() | Report() | ShowMean() | Keep():
                    pass
                case _:
                    assert_never(command)

    def _send(self, command: Send) -> None:
        worker = self._keys[command.worker]
        if not worker.alive:
            self._handle(lambda now: self.state.lose(command.worker, "is unreachable", now))
            return
        self._count(command.message)
        for arrival in worker.inbox.arrivals(self.queue.now):
            self.queue.at(arrival, lambda: worker.receive(command.message))

    def _count(self, message: ToCoordinator | ToWorker) -> None:
        self.messages[type(message).__name__] += 1
        self.all_messages[int(self.queue.now)] += 1
        if isinstance(message, Work | Done):
            self.lease_messages[int(self.queue.now)] += 1

    def _background(
        self, work: str, seconds: float, event: Callable[[float], list[Command]]
    ) -> None:
        """Pass `event` to the coordinator within `seconds`, after all other such `work`."""

        def report() -> None:
            if self.queue.now < self._stopped_until:
                self._in_this_life(self._stopped_until - self.queue.now, report)
            else:
                self._handle(event)

        ended = max(self._task_ends[work], self.queue.now) + self.rng.uniform(0, seconds)
        self._task_ends[work] = ended
        self._in_this_life(ended - self.queue.now, report)

    def _copy(self, saved: SavedState | None, now: float) -> list[Command]:
        """Check the model and copy it; with `saved`, also begin to write it."""
        bad = "layers.0.weight[1, 2]" if self.corrupted else ""
        if self.audit:
            self.audit.copied(finite=not bad)
        if saved is not None and not bad:
            self._background("write", self.conditions.write_seconds, partial(self._write, saved))
        return self.state.snapshot_taken(bad, now)

    def _write(self, saved: SavedState, now: float) -> list[Command]:
        if self.rng.random() < self.conditions.disk_full:
            return self.state.checkpoint_written("No space left on device", now)
        self._checkpoint = saved
        return self.state.checkpoint_written("", now)
