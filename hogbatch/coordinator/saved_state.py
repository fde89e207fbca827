"""The part of the coordinator's state that a checkpoint holds, and its saving and restoring."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hogbatch.coordinator.ledger import RowRange
from hogbatch.coordinator.rollbacks import RollBacks
from hogbatch.events.records import Faults, RunTotals, WorkerRecord

if TYPE_CHECKING:  # these modules import the commands, which carry a SavedState
    from hogbatch.coordinator.epochs import Epochs
    from hogbatch.coordinator.leases import Leases
    from hogbatch.coordinator.progress import Progress
    from hogbatch.coordinator.recovery import Recovery
    from hogbatch.coordinator.roster import Roster


@dataclass(frozen=True, slots=True)
class SavedState:
    """The state of a run at one moment. It is stored as JSON, so the field names are a format.

    Rows that workers held at that moment count as not done: some of them may be in the model
    already, and are trained on again.
    """

    epoch: int
    epoch_rows: int  # of this epoch, without those quarantined before it
    todo: list[RowRange]  # of these, in the order of the epoch
    quarantined: int
    rollbacks: RollBacks
    rows: int  # trained on since the start
    seconds: float  # training seconds
    best: float | None  # see progress.Best; None before the first evaluation
    best_rows: int  # trained on when it was measured
    evaluated_at: float  # training seconds
    evaluated_rows: int
    evaluation_seconds: float  # duration of the last evaluation
    last_lease: int
    faults: dict[str, int] = field(default_factory=dict)
    batch_sizes: dict[str, list[int]] = field(default_factory=dict)  # of the workers, by device
    admitted: dict[str, int] = field(default_factory=dict)  # workers ever admitted, by device
    workers: list[WorkerRecord] = field(default_factory=list)
    # worker name → its utilization since the last evaluation; see records.Evaluation
    utilization: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StateParts:
    """The parts of a coordinator that are reported, saved and restored."""

    epochs: "Epochs"
    progress: "Progress"
    recovery: "Recovery"
    leases: "Leases"
    roster: "Roster"
    faults: Counter[str]

    def totals(self, now: float) -> RunTotals:
        """The totals of the run at `now`, by the caller's clock."""
        seconds = self.progress.seconds(now)
        return RunTotals(
            seconds=seconds,
            epochs=self.progress.epochs,
            rows=self.progress.rows,
            workers=self.roster.records(seconds),
            faults=Faults(**self.faults),
        )

    def save(self, now: float) -> SavedState:
        """Everything needed to resume from `now`, by the caller's clock."""
        seconds = self.progress.seconds(now)
        return SavedState(
            epoch=self.epochs.number,
            epoch_rows=self.epochs.rows.rows,
            todo=self.epochs.rows.unfinished,
            quarantined=self.epochs.quarantined,
            rollbacks=replace(self.recovery.rollbacks),
            rows=self.progress.rows - self.epochs.rows.unmerged_rows,
            seconds=seconds,
            best=self.progress.best_loss,
            best_rows=self.progress.best_rows,
            evaluated_at=self.progress.evaluated_at,
            evaluated_rows=self.progress.evaluated_rows,
            evaluation_seconds=self.progress.evaluation_seconds,
            last_lease=self.leases.last,
            faults=dict(self.faults),
            batch_sizes=self.roster.batch_sizes(),
            admitted=self.roster.admitted,
            workers=self.roster.records(seconds),
            utilization=self.roster.interval_utilization(self.progress.evaluated_at, seconds),
        )

    def restore(self, saved: SavedState) -> None:
        """Set these parts, which must be new, to where `saved` was taken."""
        self.epochs.resume(saved.epoch, saved.quarantined, saved.epoch_rows, saved.todo)
        self.progress.resume(saved)
        self.recovery.rollbacks = replace(saved.rollbacks)
        self.leases.last = saved.last_lease
        departed = [
            worker if worker.left_at is not None else replace(worker, left_at=saved.seconds)
            for worker in saved.workers
        ]
        self.roster.resume(departed, saved.batch_sizes, saved.admitted, saved.utilization)
        self.faults.update(saved.faults)
