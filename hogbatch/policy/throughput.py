"""Arithmetic on measured speed: its average, the length of a lease, the limits of a batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hogbatch.policy.base import WorkerView

SMOOTHING = 0.3  # weight of the newest measurement
FIRST_BATCHES = 4  # batches per thread in a first lease, while nothing is known


@dataclass(slots=True)
class SecondsPerRow:
    """Moving average of a worker's seconds per row, corrected for its start at zero as in Adam."""

    _sum: float = 0.0
    _weight: float = 0.0

    def add(self, seconds: float, rows: int) -> None:
        """Take in one lease."""
        self._sum += SMOOTHING * (seconds / rows - self._sum)
        self._weight += SMOOTHING * (1.0 - self._weight)

    @property
    def value(self) -> float:
        """Seconds per row; nan before the first lease."""
        return self._sum / self._weight if self._weight else math.nan


@dataclass(frozen=True, slots=True)
class LeaseWish:
    """What bears on the length of one lease."""

    batch_size: int
    threads: int
    seconds_per_row: float  # nan while unknown
    target_seconds: float
    remaining: int  # rows of the epoch that nobody has yet
    share: float  # of all workers' speed together, 0..1


def lease_rows(wish: LeaseWish) -> int:
    """Rows of the next lease: `target_seconds` of work, in whole batches for every thread.

    Near the end of an epoch a lease takes half of the worker's fair share of what remains, so
    that leases shrink and nobody waits long for the last one (guided self-scheduling,
    Polychronopoulos & Kuck 1987). A rest of less than a batch is a lease of its own, with a
    learning rate of its own.
    """
    once = wish.batch_size * wish.threads  # a batch for every thread
    if wish.seconds_per_row > 0:
        wanted = max(min(wish.target_seconds / wish.seconds_per_row, wish.remaining), once)
    else:
        wanted = float(once * FIRST_BATCHES)
    wanted = min(wanted, wish.remaining * wish.share / 2)
    batches = max(1, int(wanted / wish.batch_size))
    if batches > wish.threads:
        batches -= batches % wish.threads
    batches = min(batches, wish.remaining // wish.batch_size)
    return batches * wish.batch_size or wish.remaining


def would_hold_up(own: WorkerView, others: Sequence[WorkerView], remaining: int) -> bool:
    """Whether one batch of a worker would still run when the others are done with all that
    remains, so that it had better leave that to them. Never true of the quickest batch.
    """
    if not others or not all(view.seconds_per_row > 0 for view in (own, *others)):
        return False  # alone, or somebody's speed is not known yet
    batch = own.batch_size * own.seconds_per_row
    quickest = min(other.batch_size * other.seconds_per_row for other in others)
    rows_meanwhile = batch * sum(1 / other.seconds_per_row for other in others)
    return batch > quickest and rows_meanwhile > remaining


def share_of_speed(own: float, others: Sequence[float]) -> float:
    """A worker's part of all speed, from seconds per row; equal parts while any is unknown."""
    if not all(value > 0 for value in (own, *others)):
        return 1 / (1 + len(others))
    return 1 / sum(own / value for value in (own, *others))


def useful_limits(profile: Sequence[tuple[int, float]]) -> tuple[int, int]:
    """Limits of a GPU worker's batch from its measured (rows of a batch, seconds): the smallest
    batch at half of the peak rows per second, and the smallest at nine tenths of it.
    """
    speeds = [(rows, rows / seconds) for rows, seconds in profile if rows > 0 and seconds > 0]
    if not speeds:
        raise ValueError(f"expected measured batches; got {list(profile)!r}")
    peak = max(speed for _, speed in speeds)
    half = min(rows for rows, speed in speeds if speed >= 0.5 * peak)
    return half, min(rows for rows, speed in speeds if speed >= 0.9 * peak)
