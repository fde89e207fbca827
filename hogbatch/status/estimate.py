"""Estimates of when a run ends: pure functions of what it has reached."""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median
from typing import Final, NamedTuple

from hogbatch.status.state import RunState

RECENT: Final = 24  # evaluations that are fitted
FEWEST: Final = 5  # evaluations without which nothing is estimated
EXPONENTS: Final = (0.25, 0.5, 1.0, 2.0)  # of training time
EARLIEST: Final = 1e-6  # of the training time; earlier evaluations are not fitted
SIGNAL: Final = 3.0  # how many times the noise the loss must have fallen over the recent time
HORIZON: Final = 10.0  # times the training time so far, beyond which nothing is estimated

Point = tuple[float, float]  # training seconds, loss


class PowerLaw(NamedTuple):
    """loss = limit + scale * seconds ** -exponent."""

    limit: float
    scale: float
    exponent: float
    noise: float  # median distance of a point from the curve

    def at(self, seconds: float) -> float:
        """The loss after `seconds` > 0 of training."""
        return float(self.limit + self.scale * seconds**-self.exponent)

    def time_of(self, loss: float) -> float | None:
        """The training seconds at which the loss is reached; None: never."""
        if loss <= self.limit or self.scale <= 0:
            return None
        try:
            return float((self.scale / (loss - self.limit)) ** (1 / self.exponent))
        except OverflowError:
            return None


def seconds_to_target(run: RunState) -> float | None:
    """Training seconds until the test loss probably reaches the target; None if not known."""
    target = run.started.target_loss if run.started is not None else None
    if target is None or run.ended is not None:
        return None
    recent = run.history[-RECENT:]
    points = tuple((each.seconds, each.test_loss) for each in recent if each.test_loss is not None)
    reached = _cached(points, target)
    return None if reached is None else max(0.0, reached - run.seconds)


@lru_cache(maxsize=8)
def _cached(points: tuple[Point, ...], target: float) -> float | None:
    """`time_to_loss`, which a live view needs several times between two evaluations."""
    return time_to_loss(points, target)


def time_to_loss(points: Sequence[Point], target: float) -> float | None:
    """The training seconds at which the recent course of the loss reaches `target`.

    None if that cannot be known: there are too few points, the loss falls too little in comparison
    with its noise, the curve flattens out above the target, or the time is too long.
    """
    recent = [(t, loss) for t, loss in points if t > 0 and math.isfinite(loss)][-RECENT:]
    unit = recent[-1][0] if recent else 1.0  # so that the result scales with the times
    recent = [(t / unit, loss) for t, loss in recent if t > EARLIEST * unit]
    if len({t for t, _ in recent}) < FEWEST:
        return None
    fitted = fit(recent)
    if fitted.at(recent[0][0]) - fitted.at(1.0) <= SIGNAL * fitted.noise:
        return None
    reached = fitted.time_of(target)
    return None if reached is None or reached > HORIZON else unit * reached


def fit(points: Sequence[Point]) -> PowerLaw:
    """The power law with the smallest noise, whose scale and limit are medians.

    Single points far from the others have little influence (Theil-Sen regression).
    """
    return min((_fit(points, exponent) for exponent in EXPONENTS), key=lambda law: law.noise)


def _fit(points: Sequence[Point], exponent: float) -> PowerLaw:
    transformed = [(t**-exponent, loss) for t, loss in points]
    slopes = [
        (y2 - y1) / (x2 - x1)
        for n, (x1, y1) in enumerate(transformed)
        for x2, y2 in transformed[n + 1 :]
        if x1 != x2 and math.isfinite((y2 - y1) / (x2 - x1))
    ]
    scale = median(slopes) if slopes else 0.0
    limit = median(y - scale * x for x, y in transformed)
    noise = median(abs(y - limit - scale * x) for x, y in transformed)
    return PowerLaw(limit, scale, exponent, noise)


def epoch_progress(run: RunState) -> float | None:
    """How much of the current epoch is done, from 0 to 1; None while its size is not known."""
    if not run.train_rows:
        return None
    done, rest = divmod(run.rows.value, run.train_rows)
    return 1.0 if run.ended is not None and done and not rest else rest / run.train_rows


def seconds_of_epoch_left(run: RunState) -> float | None:
    """Training seconds until the end of the current epoch; None if that is not known."""
    done, speed = epoch_progress(run), run.rows_per_second
    if done is None or not speed or run.ended is not None:
        return None
    return (1 - done) * run.train_rows / speed
