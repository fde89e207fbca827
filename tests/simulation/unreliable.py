"""Simulated worlds in which processes, messages and disks fail, and runs are audited."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from msgspec.structs import replace

from hogbatch.coordinator.commands import Command, Quarantine, Record, RollBack, Send
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.event import WorkerLeft, WorkerLost
from hogbatch.simulate.simulated_world import SimulatedWorld
from hogbatch.simulate.speed import Speed, SpeedEngine
from hogbatch.simulate.worker import DELAY_S, Link, SimulatedEngine, SimulatedWorker
from hogbatch.simulate.world import World
from hogbatch.wire.messages import Done, Failed, Goodbye, Hello, Lease, Ready, ToCoordinator
from tests.simulation.audit import Audit
from tests.simulation.server_engine import ServerEngine
from tests.simulation.simulated_servers import ServersWorld


@dataclass(frozen=True, slots=True)
class Conditions:
    """Quality of the simulated environment."""

    delay: float = DELAY_S  # of messages, mean
    loss: float = 0.0  # probability that a message is lost
    shuffle_seconds: float = 1e-3  # maximum, as for the next two
    copy_seconds: float = 1e-3
    write_seconds: float = 1e-3
    disk_full: float = 0.0  # probability that a checkpoint cannot be written
    restarts: int | None = 0  # of all workers together; None: unlimited
    bad_rows: int = 0  # of the training set, which kill workers that train on them


@dataclass(slots=True, eq=False)
class UnreliableWorker(SimulatedWorker):
    """A worker that stops, hangs or fails when told to."""

    resumes_at: float = 0.0  # stopped until then
    hung: bool = False  # it never becomes ready; leases are up to its engine
    has_worked: bool = False

    def stop(self, seconds: float) -> None:
        """SIGSTOP, then SIGCONT after `seconds`."""
        self.resumes_at = max(self.resumes_at, self.now + seconds)

    def leave(self) -> None:
        self._send(Goodbye())
        self.exit()

    def fail(self) -> None:
        self._send(Failed("RuntimeError: simulated"))
        self.exit("exit code 1")

    def later(self, seconds: float, action: Callable[[], object]) -> None:
        """Run `action` in `seconds`, if it is alive, and delayed while it is stopped."""
        queue = self.environment.queue

        def run() -> None:
            if self.alive and queue.now < self.resumes_at:
                queue.at(self.resumes_at, run)
            elif self.alive:
                action()

        queue.after(seconds, run)

    def _send(self, message: ToCoordinator) -> None:
        self.has_worked |= isinstance(message, Done)
        if not (self.hung and isinstance(message, Ready)):
            SimulatedWorker._send(self, message)


@dataclass(eq=False, kw_only=True)
class UnreliableEngine(SpeedEngine):
    """Its speed changes, its reports may be wrong, and some rows kill its worker.

    `deadly_row` returns the first row of a lease that kills the worker, None without one.
    """

    deadly_row: Callable[[Lease], int | None] = lambda lease: None
    memory: int | None = None  # rows of the largest batch that fits; None: unlimited
    slowdown: float = 1.0  # factor of its usual times
    misreports: bool = False  # its next Done reports wrong rows
    hung: bool = False  # the lease in progress is its last; deadly rows still kill it

    def _begin(self) -> None:
        lease = self._queue[0]
        if (deadly := self.deadly_row(lease)) is not None:
            part = (deadly - lease.start) / (lease.stop - lease.start)
            seconds = part * self._seconds(lease)
            self._host.later(seconds, lambda: self._host.exit("killed by SIGSEGV"))
        elif not self.hung:
            super()._begin()

    def _seconds(self, lease: Lease) -> float:
        return self.slowdown * super()._seconds(lease)

    def _done(self, lease: Lease, seconds: float) -> Done:
        done = super()._done(lease, seconds)
        if self.memory is not None and min(lease.batch_size, done.rows) > self.memory:
            fitting = self.rng.randrange(done.rows)
            done = replace(done, rows=fitting, too_large=lease.batch_size)
        return done

    def _finish(self, done: Done) -> None:
        misreported, self.misreports = self.misreports, False
        super()._finish(replace(done, rows=done.rows + misreported))


class Unreliable(World):
    """Processes die and stop, messages are lost; an audit checks messages and commands."""

    audit: Audit
    loss = 0.0  # probability that a message is lost
    mean_delay = DELAY_S
    restarts: int | None = 0  # of all workers together; None: unlimited

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.audit = Audit(self.state.plan)
        self.left_for_good = 0  # workers that are not restarted
        self.restarted = 0  # workers
        self.coordinator_stopped_for = 0.0  # seconds
        self._life = 0  # number of times that the coordinator was killed
        self._stopped_until = 0.0

    @abstractmethod
    def start_again(self, engine: SimulatedEngine, after: float) -> None:
        """Start a worker like that of `engine`, which has exited."""

    def new_process(self, pid: int, engine: SimulatedEngine) -> UnreliableWorker:
        inbox, outbox = (Link(self.rng, self.mean_delay) for _ in range(2))
        return UnreliableWorker(self, pid, engine, inbox, outbox)

    # The coordinator's process ----------------------------------------------------------------

    def stop_coordinator(self, seconds: float) -> None:
        """Stop the coordinator's process (SIGSTOP) for `seconds`."""
        self.coordinator_stopped_for += seconds
        self._stopped_until = max(self._stopped_until, self.queue.now + seconds)

    def kill_coordinator(self, state: Coordinator, saved: SavedState | None, after: float) -> None:
        """Kill the coordinator, and its workers with it.

        `state`, which continues from `saved`, is begun `after` seconds later.
        """
        self._life += 1
        for process in self.processes.values():
            process.alive = False
        self.processes.clear()
        self._keys.clear()
        self._task_ends.clear()
        self._pending = 0
        self.state = state
        self.audit.resume(saved)
        self.at(self.queue.now + after, self.begin)

    def at(self, time: float, action: Callable[[], None]) -> None:
        """Run `action` at `time`, unless the coordinator was killed by then."""
        life = self._life
        super().at(time, lambda: action() if self._life == life else None)

    def deliver(self, time: float, action: Callable[[], None]) -> None:
        """The same, later if the coordinator is stopped then."""

        def run() -> None:
            if self.queue.now < self._stopped_until:
                self.at(self._stopped_until, run)
            else:
                action()

        self.at(time, run)

    def _tick(self, at: float) -> None:
        if self._tick_at == at and self.finish is None:
            self.audit.check(self.state, self.queue.now)
        super()._tick(at)

    def carry_out(self, command: Command) -> None:
        self.audit.commanded(command, self)
        super().carry_out(command)

    # Messages and exits ----------------------------------------------------------------------

    def reachable(self, key: str) -> bool:
        return self.worker(key).alive

    def send_to_coordinator(self, worker: SimulatedWorker, message: ToCoordinator) -> None:
        if isinstance(message, Hello) or self.rng.random() >= self.loss:
            super().send_to_coordinator(worker, message)

    def _receive(self, worker: SimulatedWorker, message: ToCoordinator) -> None:
        if self.finish is None:
            self.audit.received(worker.key, message)
        super()._receive(worker, message)

    def _send(self, command: Send) -> None:
        if not self.reachable(command.worker) or self.rng.random() >= self.loss:
            super()._send(command)

    def _notice_exit(self, worker: SimulatedWorker, cause: str | None) -> None:
        super()._notice_exit(worker, cause)
        self.left_for_good += cause is None
        if cause is not None and (self.restarts is None or self.restarted < self.restarts):
            self.restarted += 1
            assert isinstance(worker, UnreliableWorker)
            self.start_again(worker.engine, 0.1 if worker.has_worked else 1.0)


class UnreliableServers(Unreliable, ServersWorld):
    """Servers that are lost and restarted."""

    def __init__(self, *arguments: Any, restarts: int | None = 0) -> None:
        """The `arguments` of ServersWorld."""
        super().__init__(*arguments)
        self.restarts = restarts
        self.repeated_rows = 0  # trained on again, because a server was lost before their merge
        self.lost = 0  # servers

    def start_again(self, engine: SimulatedEngine, after: float) -> None:
        assert isinstance(engine, ServerEngine)
        self.start_worker(engine.speed, after, engine.parts)

    def _record(self, command: Record) -> None:
        super()._record(command)
        match command.event:
            case WorkerLeft(reissued=spans):
                self.repeated_rows += sum(stop - start for start, stop in spans)
            case WorkerLost():
                self.lost += 1


class UnreliableWorld(Unreliable, SimulatedWorld):
    """A model that may be corrupt, a disk that may be full, and rows of which some kill workers."""

    def __init__(self, state: Coordinator, conditions: Conditions, seed: int) -> None:
        super().__init__(state, seed)
        self.actions |= {Quarantine: self._quarantine, RollBack: self._roll_back}
        self.conditions, self._seed = conditions, seed
        self.loss, self.mean_delay = conditions.loss, conditions.delay
        self.restarts = conditions.restarts
        self.corrupted = False
        self._quarantined: list[tuple[int, list[int]]] = []  # rows, bad ones
        self._without: dict[int, int] = {}  # epoch → rows left out of its order
        self._checkpoint: SavedState | None = None  # the last one

    def start_worker(self, speed: Speed, after: float = 0.0, memory: int | None = None) -> None:
        """Start a worker of `speed` whose largest batch has `memory` rows; None: unlimited."""
        self.start(
            UnreliableEngine(speed, self.rng, deadly_row=self.deadly_row, memory=memory), after
        )

    def start_again(self, engine: SimulatedEngine, after: float) -> None:
        assert isinstance(engine, UnreliableEngine)
        self.start_worker(engine.speed, after, engine.memory)

    def crash(self, resumed: Callable[[SavedState | None], Coordinator], after: float) -> None:
        """Kill the coordinator; `resumed` creates the one that continues from the last checkpoint.

        Without a checkpoint, training begins again.
        """
        saved = self._checkpoint
        self.kill_coordinator(resumed(saved), saved, after)
        self.corrupted = False
        self._fences.clear()
        quarantined = saved.quarantined if saved else 0
        while self._quarantined and sum(rows for rows, _ in self._quarantined) > quarantined:
            self._quarantined.pop()

    # Commands -------------------------------------------------------------------------------

    def write_order(self, epoch: int, without: int) -> float:
        self._without[epoch] = without
        return self.rng.uniform(0, self.conditions.shuffle_seconds)

    def copy_seconds(self) -> float:
        return self.rng.uniform(0, self.conditions.copy_seconds)

    def copy(self) -> str | None:
        return "layers.0.weight[1, 2]" if self.corrupted else None

    def _copy(self, saved: SavedState | None, now: float) -> list[Command]:
        if saved is not None and self.copy() is None:
            seconds = self.rng.uniform(0, self.conditions.write_seconds)
            self.background("write", seconds, partial(self._write, saved))
        return super()._copy(saved, now)

    def _write(self, saved: SavedState, now: float) -> list[Command]:
        full = self.rng.random() < self.conditions.disk_full
        if not full:
            self._checkpoint = saved
        return self.state.checkpoint_written("No space left on device" if full else None, now)

    def _roll_back(self, _: RollBack) -> None:
        self.corrupted = False
        self.note("rolled back")

    def _quarantine(self, command: Quarantine) -> None:
        start, stop = command.start, command.stop
        positions = self._bad_places(command.epoch)
        bad = [row for position, row in positions.items() if start <= position < stop]
        self._quarantined.append((stop - start, bad))
        self.note(f"rows {start}..{stop} of epoch {command.epoch} are quarantined")

    # Rows that kill workers -----------------------------------------------------------------

    def deadly_row(self, lease: Lease) -> int | None:
        """The first row of `lease` that kills workers that train on it; None without one."""
        if lease.task != "train" or not self.conditions.bad_rows:
            return None
        places = self._bad_places(lease.epoch)
        return min((row for row in places if lease.start <= row < lease.stop), default=None)

    def _bad_places(self, epoch: int) -> dict[int, int]:
        """Places of the bad rows in the order of `epoch`, without quarantined ones: place → row."""
        without = self._without[epoch]
        last, gone = self.state.plan.train_rows - without, set[int]()
        for rows, bad in self._quarantined:
            gone.update(bad if without > 0 else ())
            without -= rows
        return {
            Random(f"{self._seed} {row} {epoch}").randrange(max(1, last)): row
            for row in range(self.conditions.bad_rows)
            if row not in gone
        }
