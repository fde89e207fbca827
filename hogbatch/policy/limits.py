"""Limits of the batch sizes of GPU workers, in rows, where the user gives none."""

import math
from collections.abc import Sequence
from typing import Final

MIN_UTILIZATION: Final = 0.5  # with the smallest batch, as a fraction of the peak rows per second
FULL_UTILIZATION: Final = 0.9  # the same with the largest batch


def useful_limits(
    profile: Sequence[tuple[int, float]],
    utilization: float = MIN_UTILIZATION,
    largest: float = math.inf,
) -> tuple[int, int]:
    """Batch limits of a GPU worker from its measured (rows of a batch, seconds).

    These are the smallest batches that reach the fraction `utilization` of the peak rows per
    second, and nine tenths of it. Batches of more than `largest` rows are ignored, unless all are
    larger.
    """
    speeds = [(rows, rows / seconds) for rows, seconds in profile if rows > 0 and seconds > 0]
    speeds = [(rows, speed) for rows, speed in speeds if rows <= largest] or speeds
    if not speeds:
        raise ValueError(f"expected measured batches; got {list(profile)!r}")
    peak = max(speed for _, speed in speeds)
    upper = max(utilization, FULL_UTILIZATION)
    low, high = (
        min(rows for rows, speed in speeds if speed >= fraction * peak)
        for fraction in (utilization, upper)
    )
    return low, high
