"""A world in which nothing is computed: there is no model, only its delays."""

from collections import Counter
from math import inf
from random import Random

from hogbatch.config.layers import DenseLayer
from hogbatch.coordinator.commands import (
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
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.event import WorkerParked, WorkerUnparked
from hogbatch.policy.learning_rate import LearningRate
from hogbatch.simulate.speed import Speed, SpeedEngine
from hogbatch.simulate.worker import SimulatedWorker
from hogbatch.simulate.world import World
from hogbatch.wire.messages import Optimizer, Welcome

WORK_S = 1e-3  # maximum time to shuffle the rows or copy the model


def simulated_plan(
    stopping: StoppingCriteria,
    limits: Limits,
    rows: tuple[int, int, int],
    lease_seconds: float,
    beta: float,
    start_with: int = 1,
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
        checkpoint_seconds=inf,
    )


class SimulatedWorld(World):
    """Workers with given speeds."""

    def __init__(self, state: Coordinator, seed: int) -> None:
        super().__init__(state, Random(seed))
        about_the_model = Quarantine, RollBack, Report, ShowMean, ShowKept, Keep
        self.actions = {
            **self.actions,
            Revoke: self._revoke,
            Record: self._record,
            **dict.fromkeys(about_the_model, lambda _: None),
        }
        self.events: list[tuple[float, str]] = []  # (seconds, description), for the user
        self._fences: Counter[int] = Counter()

    def start_worker(self, speed: Speed, after: float = 0.0) -> None:
        """Start a worker of `speed` after `after` seconds."""
        self.start(SpeedEngine(speed, self.rng), after)

    def note(self, what: str) -> None:
        self.events.append((self.queue.now, what))

    def fence(self, number: int) -> int:
        return self._fences[number]

    def _revoke(self, command: Revoke) -> None:
        self._fences[command.number] += 1

    def write_order(self, epoch: int, without: int) -> float:
        return self.rng.uniform(0, WORK_S)

    def copy_seconds(self) -> float:
        return self.rng.uniform(0, WORK_S)

    def _record(self, command: Record) -> None:
        match command.event:
            case WorkerParked(worker, reason):
                self.note(f"{worker} is parked: {reason}")
            case WorkerUnparked(worker):
                self.note(f"{worker} trains")


def engine_of(worker: SimulatedWorker) -> SpeedEngine:
    assert isinstance(worker.engine, SpeedEngine)
    return worker.engine
