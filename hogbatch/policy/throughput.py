"""Calculations from measured speeds: lease lengths and lease timeouts."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

SMOOTHING = 0.3  # weight of the newest measurement
FIRST_BATCHES = 4  # batches per team of threads in a first lease, while the speed is unknown
LEASES_PER_S = 800  # of all workers together; each is two messages
LEASES_PER_S_AT_END = 10 * LEASES_PER_S  # of an epoch, so that the last lease ends soon
TIMEOUT_FACTOR = 8.0  # times a lease's expected duration; after that its worker counts as lost
MIN_TIMEOUT_S = 30.0  # of a worker with heartbeats: swapping or building hash tables is slow
FIRST_TIMEOUT_S = 60.0  # while the speed is unknown
FORWARD_FRACTION = 1 / 3  # work per row in evaluation, as a fraction of that in training


@dataclass(slots=True)
class SecondsPerRow:
    """Seconds per row of a worker: moving averages of the seconds and rows of its leases.

    Short leases, in which a GPU merges often, therefore count less than long ones.
    """

    _seconds: float = 0.0
    _rows: float = 0.0

    def add(self, seconds: float, rows: int) -> None:
        """Add the measurement of one lease."""
        self._seconds += SMOOTHING * (seconds - self._seconds)
        self._rows += SMOOTHING * (rows - self._rows)

    @property
    def value(self) -> float:
        """Seconds per row; nan before the first lease."""
        return self._seconds / self._rows if self._rows else math.nan


@dataclass(slots=True)
class CombinedSpeed:
    """The speed of all workers together, kept in integers so that the sum cannot drift."""

    _own: dict[int, int] = field(default_factory=dict)  # worker → rows per million seconds
    _sum: int = 0

    def __len__(self) -> int:
        """Number of workers whose speed is known."""
        return len(self._own)

    def put(self, worker: int, seconds_per_row: float) -> None:
        """Set the speed of `worker`; nan and 0 mean unknown."""
        self.drop(worker)
        if seconds_per_row > 0:
            self._own[worker] = max(1, round(min(1e6 / seconds_per_row, 1e300)))
            self._sum += self._own[worker]

    def drop(self, worker: int) -> None:
        """Remove `worker`."""
        self._sum -= self._own.pop(worker, 0)

    def fraction(self, worker: int) -> float:
        """Speed of `worker`, which must be known, over that of all workers."""
        return self._own[worker] / self._sum

    def fraction_among(self, worker: int, workers: Collection[int]) -> float | None:
        """Speed of `worker` over that of `workers`, to which it belongs; None if one is unknown."""
        if not all(each in self._own for each in workers):
            return None
        return self._own[worker] / sum(self._own[each] for each in workers)

    def of(self, worker: int) -> float:
        """Rows per second of `worker`, whose speed must be known."""
        return self._own[worker] / 1e6

    @property
    def of_all(self) -> float:
        """Rows per second of all workers whose speed is known."""
        return self._sum / 1e6

    def of_others(self, worker: int) -> float:
        """Rows per second of all workers except `worker`."""
        return (self._sum - self._own.get(worker, 0)) / 1e6


@dataclass(frozen=True, slots=True)
class LeaseSizing:
    """The quantities that determine the length of a lease."""

    batch_size: int
    teams: int  # batches that the worker computes at the same time
    seconds_per_row: float  # nan while unknown
    target_seconds: float
    remaining: int  # rows of the epoch that no worker holds
    fraction: float  # of the speed of all workers together, 0..1
    merges: bool = False  # whether the worker merges after each lease
    workers: int = 1  # that share the coordinator's time
    turn: float = 0.5  # 0..1, different for each worker, to spread their requests in time


def lease_rows(sizing: LeaseSizing) -> int:
    """Rows of the next lease.

    A lease is `target_seconds` of work, in whole batches for every team of threads. With many
    `workers` it is longer, so that all together request at most LEASES_PER_S leases per second.

    Near the end of an epoch a lease has half of the worker's proportional part of the remaining
    rows, so leases shrink and the last one ends soon (guided self-scheduling, Polychronopoulos &
    Kuck 1987); LEASES_PER_S_AT_END bounds that. A worker that trains alone takes the whole rest,
    because nobody waits for it, unless it has several teams, which would wait for each other.
    Remaining rows that are fewer than a batch become one lease.
    """
    batch = sizing.batch_size
    once = batch * sizing.teams  # a batch for every team
    row_seconds = sizing.seconds_per_row
    one_thread = sizing.teams == 1 and row_seconds > 0
    alone = sizing.fraction == 1.0 and (sizing.merges or one_thread)
    fair = sizing.remaining * sizing.fraction / (1 if alone else 2)
    if row_seconds > 0:
        pause = (0.75 + 0.5 * sizing.turn) * sizing.workers / LEASES_PER_S / row_seconds
        once = max(once, batch * math.ceil(min(pause, sizing.remaining) / batch))
        wanted = max(min(sizing.target_seconds / row_seconds, sizing.remaining), once)
        fair = max(fair, sizing.workers / LEASES_PER_S_AT_END / row_seconds)
    else:
        wanted = float(once * FIRST_BATCHES)
    batches = max(1, int(min(wanted, fair) / batch))
    batches = min(batches, sizing.remaining // batch)
    if batches > sizing.teams:
        batches -= batches % sizing.teams
    return batches * batch or sizing.remaining


def rows_of_range(wanted: int, batch: int, available: int) -> int:
    """Rows of a training lease at the start of a range of `available` rows.

    `wanted` is a result of :func:`lease_rows`. A lease has whole batches, or is a single smaller
    one, so that its learning rate is that of all its batches. No batch is smaller than half of
    `batch`, unless the range is: if whole batches would leave fewer rows, the last of them is
    divided evenly with the rest. The mean gradient of a few rows is large because of its noise, and
    optimizers that average gradients use it in later batches, at the learning rates of those.
    """
    batches, rest = divmod(available, batch)
    if batches == 0 or rest == 0 or 2 * rest >= batch:
        return min(wanted, batches * batch or available)
    if batches == 1:
        return math.ceil(available / 2)
    return min(wanted, (batches - 1) * batch)


def would_delay_epoch(batch_seconds: float, faster: Iterable[float], remaining: int) -> bool:
    """Whether a batch that takes `batch_seconds` would still be running when faster workers have
    done all `remaining` rows; in this case the rows should be left to them.

    `faster` are the rows per second of the workers with shorter batches. The answer holds for all
    workers with longer batches, too.
    """
    done = 0.0
    for rows_per_second in faster:
        done += batch_seconds * rows_per_second
        if done > remaining:
            return True
    return False


def lease_timeout(expected_seconds: float) -> float:
    """Seconds that a lease may take, from its expected duration; nan means unknown."""
    if math.isnan(expected_seconds):
        return FIRST_TIMEOUT_S
    return max(MIN_TIMEOUT_S, TIMEOUT_FACTOR * expected_seconds)
