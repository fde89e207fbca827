"""Arithmetic on measured speed: its average, the length of a lease, the limits of a batch."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

SMOOTHING = 0.3  # weight of the newest measurement
FIRST_BATCHES = 4  # batches per thread in a first lease, while nothing is known
LEASES_PER_S = 800  # of all workers together; each is two messages
LEASES_PER_S_AT_END = 10 * LEASES_PER_S  # of an epoch, so that nobody waits long for the last one
PATIENCE = 8.0  # times what a lease was expected to take: then its worker is given up
LEAST_PATIENCE_S = 30.0  # it beats, so it is not dead; swapping, or hash tables, may take that
FIRST_PATIENCE_S = 60.0  # while nothing is known


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


@dataclass(slots=True)
class JointSpeed:
    """The speed of all workers together. Whole numbers, for a sum of them cannot drift."""

    _own: dict[int, int] = field(default_factory=dict)  # worker → rows in a million seconds
    _sum: int = 0

    def __len__(self) -> int:
        """Workers whose speed is known."""
        return len(self._own)

    def put(self, worker: int, seconds_per_row: float) -> None:
        """Take in the speed of `worker`; nan and 0 stand for unknown."""
        self.drop(worker)
        if seconds_per_row > 0:
            self._own[worker] = max(1, round(min(1e6 / seconds_per_row, 1e300)))
            self._sum += self._own[worker]

    def drop(self, worker: int) -> None:
        """Leave `worker` out."""
        self._sum -= self._own.pop(worker, 0)

    def fraction(self, worker: int) -> float:
        """The part that `worker`, whose speed is known, has in all speed."""
        return self._own[worker] / self._sum

    def of(self, worker: int) -> float:
        """Rows per second of `worker`, whose speed is known."""
        return self._own[worker] / 1e6

    def of_others(self, worker: int) -> float:
        """Rows per second of all but `worker`."""
        return (self._sum - self._own.get(worker, 0)) / 1e6


@dataclass(frozen=True, slots=True)
class LeaseWish:
    """What bears on the length of one lease."""

    batch_size: int
    threads: int
    seconds_per_row: float  # nan while unknown
    target_seconds: float
    remaining: int  # rows of the epoch that nobody has yet
    fraction: float  # of all workers' speed together, 0..1
    workers: int = 1  # among whom the coordinator's time is divided
    turn: float = 0.5  # 0..1, different for each, so that they do not ask all at once


def lease_rows(wish: LeaseWish) -> int:
    """Rows of the next lease: `target_seconds` of work, in whole batches for every thread, or as
    many seconds, more for some and less for others, as keep all `workers` together from asking
    more than LEASES_PER_S times a second.

    Near the end of an epoch a lease takes half of the worker's fair share of what remains, so
    that leases shrink and nobody waits long for the last one (guided self-scheduling,
    Polychronopoulos & Kuck 1987); LEASES_PER_S_AT_END bounds that. A rest of less than a batch is
    a lease of its own, with a learning rate of its own.
    """
    once = wish.batch_size * wish.threads  # a batch for every thread
    fair = wish.remaining * wish.fraction / 2
    if wish.seconds_per_row > 0:
        pause = (0.75 + 0.5 * wish.turn) * wish.workers / LEASES_PER_S / wish.seconds_per_row
        once = max(once, wish.batch_size * math.ceil(min(pause, wish.remaining) / wish.batch_size))
        wanted = max(min(wish.target_seconds / wish.seconds_per_row, wish.remaining), once)
        fair = max(fair, wish.workers / LEASES_PER_S_AT_END / wish.seconds_per_row)
    else:
        wanted = float(once * FIRST_BATCHES)
    batches = max(1, int(min(wanted, fair) / wish.batch_size))
    batches = min(batches, wish.remaining // wish.batch_size)
    if batches > wish.threads:
        batches -= batches % wish.threads
    return batches * wish.batch_size or wish.remaining


def would_hold_up(batch_seconds: float, quicker: Iterable[float], remaining: int) -> bool:
    """Whether one batch of a worker would still run when all that remains is done by those whose
    batches are `quicker`, at so many rows per second each, so that it had better leave that to
    them. So, too, for whoever has longer batches.
    """
    done = 0.0
    for rows_per_second in quicker:
        done += batch_seconds * rows_per_second
        if done > remaining:
            return True
    return False


def patience(expected_seconds: float) -> float:
    """Seconds that a lease may take which was expected to take so many; nan stands for unknown."""
    if math.isnan(expected_seconds):
        return FIRST_PATIENCE_S
    return max(LEAST_PATIENCE_S, PATIENCE * expected_seconds)


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
