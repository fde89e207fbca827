"""A model of how fast workers learn together, from their speeds and their batches.

With R rows per second, and F rows in flight, the workers learn at the rate

    R / (1 + F / B)

F counts the rows that a gradient should contain and does not, as a mean over all rows: those of its
own batch, and those that other workers have in flight, from the beginning of their batch until they
are in the shared model. The latter cost less on a GPU whose changes are damped. B is the critical
batch. R is lower by the time that training pauses for evaluations and at the end of an epoch.
docs/batch-policy.md derives the rule, and says what it leaves out.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hogbatch.policy.base import Operation, PolicySettings, WorkerView

# Predicted gain from which on a batch size changes. For 6 %, teams changed and learned more slowly.
RESIZE_GAIN = 1.1
LEAST_IN_FLIGHT = 1 / 8  # of the critical batch; with fewer rows, training needs as many
# Batches between two merges that are considered. With 1, two GPUs needed up to four times the rows
# of one.
INTERVALS = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Load:
    """The load of workers that train together."""

    speed: float = 0.0  # rows per second
    in_flight: float = 0.0  # rows
    # the rows in flight that a worker's own replica contains, times its speed; summed over workers
    own: float = 0.0
    # the fraction of a row in flight elsewhere that costs a worker nothing, times its speed; summed
    damped: float = 0.0
    lost: float = 0.0  # rows of training that one pause costs

    def __add__(self, other: "Load") -> "Load":
        return Load(
            self.speed + other.speed,
            self.in_flight + other.in_flight,
            self.own + other.own,
            self.damped + other.damped,
            self.lost + other.lost,
        )

    def __sub__(self, other: "Load") -> "Load":
        return self + Load(-other.speed, -other.in_flight, -other.own, -other.damped, -other.lost)

    @property
    def unseen(self) -> float:
        """The rows in flight that a gradient does not contain, as a mean over all rows."""
        if self.speed <= 0:
            return self.in_flight
        return self.in_flight * (1.0 - self.damped / self.speed) - self.own / self.speed

    @property
    def pause(self) -> float:
        """Seconds of training that one pause costs, as a mean over all rows."""
        return self.lost / self.speed if self.speed > 0 else 0.0

    def pauses_per_second(self, rows_between_pauses: tuple[int, int]) -> float:
        """Pauses per second of training: ends of epochs, and evaluations.

        `rows_between_pauses` is that of PolicySettings. A run with a target has at least one
        evaluation in an epoch. Without a target, both numbers are equal, and there are few.
        """
        least, most = rows_between_pauses
        if most == 0 or self.pause <= 0:
            return 0.0
        epoch = most / self.speed
        if least == most:
            return 1.0 / epoch
        interval = max(least / self.speed, best_interval(self.pause, epoch))
        return 1.0 / epoch + 1.0 / min(epoch, interval)

    def rate(self, settings: PolicySettings) -> float:
        """The rate of learning, in rows per second of small batches."""
        unseen = max(self.unseen / settings.critical_batch, LEAST_IN_FLIGHT)
        paused = self.pauses_per_second(settings.rows_between_pauses) * self.pause
        return self.speed / (1.0 + unseen) / (1.0 + paused)


def batch_seconds(profile: Sequence[tuple[int, float]], rows: int) -> float:
    """Predicted seconds of a batch of `rows` rows, between the two nearest measured sizes.

    `profile` has (rows, seconds) of measured batches, and must not be empty.
    """
    profile = sorted(profile)
    smaller = [point for point in profile if point[0] <= rows]
    larger = [point for point in profile if point[0] > rows]
    if not smaller:
        return larger[0][1]
    if not larger:
        return smaller[-1][1] * rows / smaller[-1][0]
    (low, seconds), (high, more) = smaller[-1], larger[0]
    return seconds + (more - seconds) * (rows - low) / (high - low)


def pause_seconds(merge: tuple[float, float]) -> float:
    """Seconds that a GPU loses in a pause of the training: those of a merge and of a pull.

    `merge` is as in WorkerView. Training pauses for evaluations, and at the end of an epoch.
    """
    blocking, background = merge
    return blocking + 2.0 * background


def best_interval(pause: float, trained: float) -> float:
    """Training seconds between pauses that cost `pause` seconds each, after `trained` seconds.

    The target is noticed half an interval late on average, so a run of T seconds with intervals of
    x loses T pause / x + x / 2, least for x = sqrt(2 pause T) (Young 1974, for checkpoints).
    """
    return math.sqrt(2.0 * pause * trained)


def load(worker: WorkerView, operation: Operation, stale_cost: float = 1.0) -> Load:
    """The load of a worker. Its rows in flight are rows per second times their seconds in flight.

    On a GPU these are the seconds from the beginning of a batch to the end of its merge, which
    follows the interval of the batch, while the next interval is trained. With `merge_every` 0 it
    does not merge, or it trains alone, and then its merges delay nothing. Beside others, it waits
    in a pause for half of an interval, as a mean. `stale_cost` is that of PolicySettings.
    """
    rows, every = operation.batch_size, operation.merge_every
    seconds = batch_seconds(worker.profile, rows)
    if worker.device == "cpu":
        return Load(worker.teams * rows / seconds, worker.teams * rows)
    blocking, background = worker.merge
    speed, in_flight, pause = rows / seconds, float(rows), pause_seconds(worker.merge)
    if every > 0:
        period = max(every * seconds, background) + blocking
        speed = every * rows / period
        in_flight = speed * (period - (every - 1) / 2 * seconds + background)
        pause += period / 2
    own, damped = stale_cost * in_flight - rows, 1.0 - stale_cost
    return Load(speed, in_flight, own * speed, damped * speed, pause * speed)


def with_measured_speeds(
    workers: Sequence[WorkerView], rows_between_pauses: tuple[int, int]
) -> list[WorkerView]:
    """`workers` with profiles that agree with their measured speeds; empty if nothing is known.

    In training they may be slower than predicted, because of leases, and because other threads use
    the same caches and memory. They may be faster if other programs slowed down the measurement.
    One that has not trained yet is as much slower than predicted as another one of its device is:
    leases and pauses take time from both.
    """
    training = sum((_current(each) for each in workers if each.trains), Load())
    pauses = training.pauses_per_second(rows_between_pauses)
    views = [_with_measured_speed(worker, pauses) for worker in workers]
    factors = {
        view.device: view.profile[0][1] / worker.profile[0][1]
        for worker, view in zip(workers, views, strict=True)
        if view is not worker and worker.profile
    }
    return [
        _scaled(view, factors.get(view.device, 1.0)) if view is worker else view
        for worker, view in zip(workers, views, strict=True)
    ]


def _with_measured_speed(worker: WorkerView, pauses_per_second: float) -> WorkerView:
    """`worker` with a profile that agrees with its measured speed.

    The last leases of a GPU may have had any number of pauses, so between its predicted speeds with
    pauses and without, the profile agrees.
    """
    if not worker.seconds_per_row > 0 or worker.batch_size == 0:
        return worker
    if not worker.profile:
        seconds = worker.seconds_per_row * worker.batch_size * worker.teams
        return replace(worker, profile=((worker.batch_size, seconds),))
    fastest = _current(worker).speed * worker.seconds_per_row
    slowest = fastest / (1.0 + pauses_per_second * pause_seconds(worker.merge))
    return _scaled(worker, max(slowest, min(1.0, fastest)))


def _current(worker: WorkerView) -> Load:
    """The load of a worker as it trains now; none if its speed or its batch is not known."""
    if not worker.profile or worker.batch_size == 0:
        return Load()
    return load(worker, Operation(worker.batch_size, worker.merge_every))


def _scaled(worker: WorkerView, factor: float) -> WorkerView:
    """`worker` with a profile whose seconds are multiplied by `factor`."""
    profile = tuple((rows, factor * seconds) for rows, seconds in worker.profile)
    return replace(worker, profile=profile)


def operations(worker: WorkerView, *, alone: bool) -> Iterator[Operation]:
    """The operations that are considered, within the limits of `worker`.

    A single CPU thread uses its largest batch, which does not depend on measured seconds. How often
    a GPU merges is only considered with other workers.
    """
    sizes = {rows for rows, _ in worker.profile if worker.smallest <= rows <= worker.largest}
    if worker.device == "cpu":
        single = worker.teams == worker.members == 1
        yield from map(Operation, [worker.largest] if single else sorted(sizes | {worker.largest}))
        return
    for rows in sorted(sizes or {worker.smallest, worker.largest}):
        yield from (Operation(rows, every) for every in ((0,) if alone else INTERVALS))


def best_operation(worker: WorkerView, others: Load, settings: PolicySettings) -> Operation:
    """The operation of `worker` with which it and `others` learn fastest.

    Another batch size than the current one must bring a gain: speeds are not measured exactly, and
    a GPU has to prepare batches of another size. A CPU worker begins with its largest batch.
    """
    usual = worker.batch_size
    if worker.device == "cpu" and usual == 0:
        usual = worker.largest

    def rate(operation: Operation) -> float:
        joint = others + load(worker, operation, settings.stale_cost)
        gain = RESIZE_GAIN if operation.batch_size == usual else 1.0
        return gain * joint.rate(settings)

    return max(operations(worker, alone=others.speed <= 0.0), key=rate)
