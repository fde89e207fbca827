"""A world in which nothing is computed: there is no model, only its faults and delays."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from hogbatch.config.layers import DenseLayer
from hogbatch.coordinator.commands import (
    Command,
    Keep,
    Quarantine,
    Record,
    Report,
    Revoke,
    RollBack,
    ShowKept,
    ShowMean,
)
from hogbatch.coordinator.plan import Identity, Limits, Plan, StoppingCriteria
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.event import WorkerParked, WorkerUnparked
from hogbatch.policy.learning_rate import LearningRate
from hogbatch.simulate.audit import Audit
from hogbatch.simulate.speed import Speed, SpeedEngine
from hogbatch.simulate.worker import SimulatedWorker
from hogbatch.simulate.world import DELAY_S, World
from hogbatch.wire.messages import Lease, Optimizer, Welcome


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


@dataclass(frozen=True, slots=True)
class SimulatedMerge:
    """A merge of several servers that counts."""

    seconds: float  # under way, as the coordinator sees it
    rows: int
    transfers: int  # between servers
    sent_bytes: float  # by the server that sends most


def simulated_plan(
    stopping: StoppingCriteria,
    limits: Limits,
    rows: tuple[int, int, int],
    lease_seconds: float,
    beta: float,
    start_with: int = 1,
    checkpoint_seconds: float = float("inf"),
) -> Plan:
    """A plan for `rows` (training, validation and test rows) that do not exist."""
    optimizer = Optimizer("sgd", 0.0, 0.0, 0.0, 0.0)
    layers = (DenseLayer(1, 1, "linear"),)
    return Plan(
        identity=Identity("0", ""),
        training=Welcome(layers, "logistic", optimizer, "delta", 1, "root", "float32"),
        limits=limits,
        stopping=stopping,
        learning_rate=LearningRate(0.1, schedule="cosine", epochs=stopping.epochs or 1_000_000),
        lease_seconds=lease_seconds,
        train_rows=rows[0],
        validation_rows=rows[1],
        test_rows=rows[2],
        beta=beta,
        start_with=start_with,
        checkpoint_seconds=checkpoint_seconds,
    )


class SimulatedWorld(World):
    """Workers with given speeds, and a model that may be corrupt.

    It is trained on rows of which some kill workers.
    """

    def __init__(
        self, state: Coordinator, conditions: Conditions, seed: int, audit: Audit | None = None
    ) -> None:
        super().__init__(
            state,
            Random(seed),
            delay=conditions.delay,
            loss=conditions.loss,
            restarts=conditions.restarts,
            audit=audit,
        )
        self.actions = {
            **self.actions,
            Revoke: self._revoke,
            Quarantine: self._quarantine,
            RollBack: self._roll_back,
            Record: self._record,
            **dict.fromkeys(
                (Report, ShowMean, ShowKept, Keep), lambda _: None
            ),  # there is no model
        }
        self.conditions, self._seed = conditions, seed
        self.corrupted = False
        self.coordinator_stopped_for = 0.0  # seconds
        self.events: list[tuple[float, str]] = []  # (seconds, description), for the user
        self.merges: list[SimulatedMerge] = []
        self._fences: Counter[int] = Counter()
        self._quarantined: list[tuple[int, list[int]]] = []  # rows, bad ones
        self._without: dict[int, int] = {}  # epoch → rows left out of its order
        self._checkpoint: SavedState | None = None  # the last one

    def start_worker(self, speed: Speed, after: float = 0.0) -> None:
        """Start a worker of `speed` after `after` seconds."""
        self.start(lambda: SpeedEngine(speed, self.rng, self.deadly_row), after)

    def note(self, what: str) -> None:
        self.events.append((self.queue.now, what))

    def stop_coordinator(self, seconds: float) -> None:
        """Stop the coordinator's process (SIGSTOP) for `seconds`."""
        self.coordinator_stopped_for += seconds
        self._stopped_until = max(self._stopped_until, self.queue.now + seconds)

    def kill_coordinator(
        self, resumed: Callable[[SavedState | None], Coordinator], after: float
    ) -> None:
        """Kill the coordinator, and its workers with it; resume the run `after` seconds later.

        `resumed` creates the coordinator that continues from the last checkpoint; without one,
        training begins again.
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
        self.corrupted = False
        self._fences.clear()
        quarantined = saved.quarantined if saved else 0
        while self._quarantined and sum(rows for rows, _ in self._quarantined) > quarantined:
            self._quarantined.pop()

    # Commands -------------------------------------------------------------------------------

    def fence(self, number: int) -> int:
        return self._fences[number]

    def _revoke(self, command: Revoke) -> None:
        self._fences[command.number] += 1

    def write_order(self, epoch: int, without: int) -> float:
        self._without[epoch] = without
        return self.rng.uniform(0, self.conditions.shuffle_seconds)

    def _quarantine(self, command: Quarantine) -> None:
        start, stop = command.start, command.stop
        positions = self._bad_places(command.epoch)
        bad = [row for position, row in positions.items() if start <= position < stop]
        self._quarantined.append((stop - start, bad))
        self.note(f"rows {start}..{stop} of epoch {command.epoch} are quarantined")

    def copy_seconds(self) -> float:
        return self.rng.uniform(0, self.conditions.copy_seconds)

    def copy(self) -> str | None:
        return "layers.0.weight[1, 2]" if self.corrupted else None

    def save(self, saved: SavedState) -> None:
        seconds = self.rng.uniform(0, self.conditions.write_seconds)
        self.background("write", seconds, partial(self._write, saved))

    def _write(self, saved: SavedState, now: float) -> list[Command]:
        full = self.rng.random() < self.conditions.disk_full
        if not full:
            self._checkpoint = saved
        return self.state.checkpoint_written("No space left on device" if full else None, now)

    def _roll_back(self, _: RollBack) -> None:
        self.corrupted = False
        self.note("rolled back")

    def _record(self, command: Record) -> None:
        match command.event:
            case WorkerParked(worker, reason):
                self.note(f"{worker} is parked: {reason}")
            case WorkerUnparked(worker):
                self.note(f"{worker} trains")

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


def engine_of(worker: SimulatedWorker) -> SpeedEngine:
    assert isinstance(worker.engine, SpeedEngine)
    return worker.engine
