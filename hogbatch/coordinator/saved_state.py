"""The part of the coordinator's state that a checkpoint holds, and its saving and restoring."""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hogbatch.coordinator.ledger import RowRange
from hogbatch.coordinator.rollbacks import RollBacks
from hogbatch.events.records import WorkerRecord

if TYPE_CHECKING:  # it imports the commands, which carry a SavedState
    from hogbatch.coordinator.state import Coordinator


@dataclass(frozen=True, slots=True)
class SavedState:
    """The state of a run at one moment. It is stored as JSON, so the field names are a format.
    Files of earlier versions have more fields.

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
    admitted: dict[str, int] = field(default_factory=dict)  # workers ever admitted, by device
    workers: list[WorkerRecord] = field(default_factory=list)


def save(state: "Coordinator", now: float) -> SavedState:
    """Everything needed to resume from `now`, by the caller's clock."""
    progress, roster, rows = state.progress, state.roster, state.epochs.rows
    seconds = progress.seconds(now)
    return SavedState(
        epoch=state.epochs.number,
        epoch_rows=rows.rows,
        todo=rows.unfinished,
        quarantined=state.epochs.quarantined,
        rollbacks=replace(state.recovery.rollbacks),
        rows=progress.rows - rows.unmerged_rows,
        seconds=seconds,
        best=None if math.isinf(progress.best.loss) else progress.best.loss,
        best_rows=progress.best.rows,
        evaluated_at=progress.evaluated_at,
        evaluated_rows=progress.evaluated_rows,
        evaluation_seconds=progress.evaluation_seconds,
        last_lease=state.leases.last,
        faults=dict(state.accounting.faults),
        admitted=dict(roster.admitted),
        workers=roster.records(seconds),
    )


def restore(state: "Coordinator", saved: SavedState) -> None:
    """Set `state`, which must be new, to where `saved` was taken."""
    state.epochs.resume(saved.epoch, saved.quarantined, saved.epoch_rows, saved.todo)
    state.progress.resume(saved)
    state.recovery.rollbacks = replace(saved.rollbacks)
    state.leases.last = saved.last_lease
    state.roster.admitted = dict(saved.admitted)
    state.roster.earlier = [
        worker if worker.left_at is not None else replace(worker, left_at=saved.seconds)
        for worker in saved.workers
    ]
    state.accounting.faults.update(saved.faults)
