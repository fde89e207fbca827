"""The records of a run, as in the stable summary.json, and who observes them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from hogbatch.config.metrics import ranking
from hogbatch.events.event import AnyEvent, Count, Evaluation, Seconds

SHORTEST: Final = 0.1  # interval between evaluations in which speeds are measured, over the usual


@dataclass(slots=True)
class IntervalSpeed:
    """Measures the rows per second between evaluations."""

    seconds: float = 0.0  # of training, at the last evaluation
    rows: int = 0
    _interval: float = 0.0  # seconds between the last two

    def next(self, seconds: float, rows: int) -> float | None:
        """The speed until the next evaluation.

        None if the interval is much shorter than the one before, as the last one of a run may be:
        then few leases end in it, or none.
        """
        interval, usual = seconds - self.seconds, self._interval
        trained = rows - self.rows
        self.seconds, self.rows, self._interval = seconds, rows, interval
        return trained / interval if interval > SHORTEST * usual else None


def rank(evaluation: Evaluation, metric: str | None) -> float:
    """A number that is the lowest for the best model, by `metric` or, if that is None, the loss."""
    value = evaluation.validation_loss
    if metric is not None:
        value = ranking(metric, evaluation.validation_values)
    return math.inf if value is None else value


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """The contribution of one worker to a run."""

    name: str
    device: str
    threads: Count
    rows: Count
    updates: Count
    update_share: float
    busy: float  # fraction of its training seconds spent computing, 0..1, without those parked
    batch_size: Count
    batch_trace: list[tuple[Seconds, Count]]  # [training seconds, rows], at each change
    update_trace: list[tuple[Seconds, Count]]  # [training seconds, updates], at each evaluation
    utilization: float | None = None  # rows per second over its peak; None: not measured
    parked_seconds: Seconds = 0.0  # training seconds for which it only evaluated
    left_at: Seconds | None = None  # training seconds; None if it stayed to the end
    staleness: float | None = None  # of a GPU: mean updates by other workers from pull to merge
    merge_seconds: float | None = None  # of a GPU: during which merges kept it from training
    transferred: Count | None = None  # of a GPU: bytes copied between host and device
    transfer_seconds: float | None = None  # of a GPU: duration of these copies
    active: float | None = None  # mean active outputs per update, with a hashed output layer


@dataclass(frozen=True, slots=True)
class Faults:
    """Counts of faults that the run recovered from."""

    leases_reissued: int = 0
    rows_skipped: int = 0
    messages_refused: int = 0
    workers_lost: int = 0
    merges_refused: int = 0
    rows_quarantined: int = 0  # each killed three workers
    roll_backs: int = 0
    checkpoints_failed: int = 0
    connections_refused: int = 0


@dataclass(frozen=True, slots=True)
class RunTotals:
    """Totals of a run at one moment."""

    seconds: float
    epochs: float
    rows: int
    workers: list[WorkerRecord]
    faults: Faults

    def with_refused(self, frames: int, connections: int) -> "RunTotals":
        """The totals with what was refused before it reached the coordinator's state."""
        frames += self.faults.messages_refused
        refused = {"messages_refused": frames, "connections_refused": connections}
        return replace(self, faults=replace(self.faults, **refused))


class Observer(Protocol):
    """Shows or forwards what a run records. Its methods return soon and never raise.

    They are called on the thread of the coordinator, which handles no messages meanwhile.
    """

    def event(self, event: AnyEvent, workers: Sequence[WorkerRecord] = ()) -> None:
        """An event, as in events.jsonl; with an Evaluation, all workers at that time."""
