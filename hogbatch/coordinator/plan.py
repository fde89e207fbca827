"""The plan of a run: settings that are fixed before it starts and never change."""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from hogbatch.config.sets import SetName
from hogbatch.policy.learning_rate import LearningRate
from hogbatch.policy.limits import MIN_UTILIZATION
from hogbatch.wire.messages import Hello, Welcome

if TYPE_CHECKING:  # these modules import this one
    from hogbatch.coordinator.epochs import Epochs
    from hogbatch.coordinator.merges import Merges
    from hogbatch.coordinator.roster import Roster


class MergesFactory(Protocol):
    """Makes the merges of workers with models of their own."""

    def __call__(self, roster: "Roster", epochs: "Epochs") -> "Merges": ...


@dataclass(frozen=True, slots=True)
class Identity:
    """The properties that a worker must share before it is admitted."""

    package: str  # version of hogbatch
    fingerprint: str  # of the dataset

    def mismatch(self, hello: Hello) -> str | None:
        """Why the worker that sent `hello` cannot be admitted; None if it can."""
        if hello.package != self.package:
            return (
                f"the coordinator runs hogbatch {self.package}, this worker {hello.package}: "
                "install the same version on both sides"
            )
        if hello.fingerprint != self.fingerprint:
            return (
                f"the coordinator's dataset is {self.fingerprint}, this worker mapped "
                f"{hello.fingerprint or 'none'}: attach to the run directory again"
            )
        return None


@dataclass(frozen=True, slots=True)
class Limits:
    """Smallest and largest batch by device; None: what the coordinator finds suitable.

    This depends on what the worker has measured, and for a CPU worker on its teams.
    """

    cpu: tuple[int, int] | None
    gpu: tuple[int, int] | None
    # of the peak rows per second, with the smallest batch; without limits
    min_utilization: float = MIN_UTILIZATION  # of a GPU worker
    cpu_min_utilization: float = 0.0  # of a CPU worker; 0: one row
    largest_useful: float = math.inf  # rows; the peak of a GPU worker is not above them


@dataclass(frozen=True, slots=True)
class StoppingCriteria:
    """When to stop and to evaluate, and which model to keep."""

    epochs: int | None
    max_seconds: float | None  # training seconds
    target_loss: float | None
    eval_seconds: float | None  # training seconds between evaluations; None: automatic
    keep: Literal["best", "last"]
    wait_for_workers: float  # seconds without any worker after which the run fails
    patience: float = 0  # epochs without a better model after which the run ends; 0: never
    # of the validation rows, by which models are compared; None: the loss
    metric: str | None = None
    by_epoch: bool = False  # evaluate after each epoch, regardless of the time
    average: bool = False  # evaluate and keep the moving mean of the model
    max_rows: int | None = None  # trained on; a row counts once per epoch
    first_epoch: bool = False  # evaluate the initial model, and several ones of the first epoch


@dataclass(frozen=True, slots=True)
class Plan:
    """All settings that the coordinator's decisions depend on."""

    identity: Identity
    training: Welcome  # of each worker, apart from its own number, name and heartbeats
    limits: Limits
    stopping: StoppingCriteria
    learning_rate: LearningRate
    lease_seconds: float
    train_rows: int
    validation_rows: int
    test_rows: int = 0
    beta: float = 1.0  # weight of a CPU worker's update in policies
    start_with: int = 1  # workers that must be ready before training starts
    checkpoint_seconds: float = math.inf  # between two checkpoints
    merging: MergesFactory | None = None  # None: the workers share one model
    keeps_scores: bool = False  # workers store the scores of evaluated rows, for metrics
    # Rows of each part of divided data, in the order of an epoch, by set; none of a set of which
    # all workers have all rows. The numbers of the parts in Hello.parts hold for all sets.
    parts: dict[SetName, tuple[int, ...]] = field(default_factory=dict)
    part_names: tuple[str, ...] = ()  # of the files that are the parts, for messages; (): unknown
    unit: float = 1.0  # by which real labels were divided; see hogbatch.data.encode
    targets: int = 1  # numbers per row, over which losses and squared errors are averaged

    def rows_of(self, name: SetName) -> int:
        rows = {"train": self.train_rows, "validation": self.validation_rows}
        return rows.get(name, self.test_rows)

    def parts_of(self, name: SetName) -> tuple[int, ...]:
        """The rows of each part of a set; (): it is not divided."""
        return self.parts.get(name, ())
