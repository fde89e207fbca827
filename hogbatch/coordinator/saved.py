"""What the coordinator must know to go on with a run that was cut off."""

from dataclasses import dataclass, field

from hogbatch.coordinator.ledger import Span
from hogbatch.coordinator.rollbacks import RollBacks
from hogbatch.telemetry.records import WorkerRecord


@dataclass(frozen=True, slots=True)
class Saved:
    """The state of a run at one moment; all of it goes through JSON.

    Rows that workers held at that moment count as not done: some of them may be in the model
    already, and are trained on once more.
    """

    epoch: int
    epoch_rows: int  # of this epoch, without those quarantined before it
    todo: list[Span]  # of these, in the order of the epoch
    quarantined: int
    rollbacks: RollBacks
    rows: int  # trained on since the start
    seconds: float  # training seconds
    best: float | None  # see progress.Best; None before the first evaluation
    best_rows: int  # trained on when it was measured
    evaluated_at: float  # training seconds
    evaluated_rows: int
    evaluation_seconds: float  # that the last one took
    last_lease: int
    faults: dict[str, int] = field(default_factory=dict)
    batch_sizes: dict[str, list[int]] = field(default_factory=dict)  # by device, of who was there
    admitted: dict[str, int] = field(default_factory=dict)  # by device, workers ever taken in
    workers: list[WorkerRecord] = field(default_factory=list)  # their accounts
