"""The part of the coordinator's state that a checkpoint holds, and its saving and restoring."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from hogbatch.coordinator.ledger import RowRange
from hogbatch.events.event import Count, Seconds
from hogbatch.events.records import Faults, WorkerRecord

if TYPE_CHECKING:  # it imports the commands, which carry a SavedState
    from hogbatch.coordinator.state import Coordinator

MAX_ROLLBACKS = 3  # with this number of roll-backs that count, the run ends
PROGRESS = 4  # times the rows that a roll-back discarded: rows trained without another roll-back


@dataclass(slots=True)
class RollBacks:
    """Roll-backs of one run; `rows` is always the number of rows trained on since its start.

    Each one halves the learning rate, and after MAX_ROLLBACKS without progress between them the run
    ends. Progress cancels one of them together with its halving (docs/decisions, 31). It is part of
    SavedState: the field names are a format.
    """

    total: Count = 0
    counted: Annotated[int, Meta(ge=0, le=MAX_ROLLBACKS)] = 0  # not cancelled by progress
    finite_at: Count = 0  # rows, when the model was last found to be finite
    since: Count = 0  # rows, when the last roll-back happened or was cancelled
    period: int = 0  # rows of training that count as progress; also negative

    def add(self, rows: int) -> None:
        """The model is restored to what it was at `finite_at`."""
        self.total += 1
        self.counted += 1
        self.period = PROGRESS * (rows - self.finite_at)
        self.since = self.finite_at = rows

    def found_finite(self, rows: int) -> bool:
        """The model after `rows` rows is finite; return whether this cancels a roll-back."""
        self.finite_at = rows
        if not self.counted or rows - self.since <= self.period:
            return False
        self.counted -= 1
        self.since = rows
        return True

    @property
    def too_many(self) -> bool:
        """Whether the run must end."""
        return self.counted >= MAX_ROLLBACKS

    @property
    def rate_factor(self) -> float:
        return float(0.5**self.counted)


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
