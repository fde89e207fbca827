"""The part of the coordinator's state that a checkpoint holds, and its saving and restoring."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from hogbatch.coordinator.ledger import RowRange
from hogbatch.coordinator.rollbacks import RollBacks
from hogbatch.events.records import Count, Faults, Seconds, WorkerRecord

if TYPE_CHECKING:  # it imports the commands, which carry a SavedState
    from hogbatch.coordinator.state import Coordinator


@dataclass(frozen=True, slots=True)
class SavedState:
    """The state of a run at one moment. It is stored as JSON, so the field names are a format.
    Files of earlier versions have more fields.

    Rows that workers held at that moment count as not done: some of them may be in the model
    already, and are trained on again.
    """

    epoch: Count
    epoch_rows: Count  # of this epoch, without those quarantined before it
    todo: list[RowRange]  # of these, in the order of the epoch
    quarantined: Count
    rollbacks: RollBacks
    rows: Count  # trained on since the start
    seconds: Seconds  # of training
    best: float | None  # see progress.Best; None before the first evaluation
    best_rows: Count  # trained on when it was measured
    evaluated_at: Seconds  # of training
    evaluated_rows: Count
    evaluation_seconds: Seconds  # duration of the last evaluation
    last_lease: Count
    faults: dict[str, Count] = field(default_factory=dict)
    admitted: dict[str, Count] = field(default_factory=dict)  # workers ever admitted, by device
    workers: list[WorkerRecord] = field(default_factory=list)

    def validate(self) -> None:
        """ValueError if the state contradicts itself, which no state does that was saved."""
        end = 0
        for start, stop, deaths in sorted(self.todo):
            if not end <= start < stop <= self.epoch_rows or deaths < 0:
                raise ValueError(
                    f"todo: expected separate ranges within {self.epoch_rows} rows; got "
                    f"{[start, stop, deaths]} after row {end}"
                )
            end = stop
        if unknown := self.faults.keys() - {each.name for each in fields(Faults)}:
            raise ValueError(f"faults: expected those of a run; got {sorted(unknown)}")


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
