"""Limits of batch sizes, in rows, where the user gives none."""

import math
from typing import Final

from hogbatch.policy.utilization import Profile

MIN_UTILIZATION: Final = 0.5  # with the smallest batch, as a fraction of the peak rows per second
FULL_UTILIZATION: Final = 0.9  # the same with the largest batch


def useful_limits(
    profile: Profile, utilization: float = MIN_UTILIZATION, largest: float = math.inf
) -> tuple[int, int]:
    """Batch limits of a GPU worker from its measured (rows of a batch, seconds).

    These are the smallest batches that reach the fraction `utilization` of the peak rows per
    second, and nine tenths of it. Batches of more than `largest` rows are ignored, unless all are
    larger.
    """
    profile = [point for point in profile if point[0] <= largest] or profile
    upper = max(utilization, FULL_UTILIZATION)
    return smallest_useful(profile, utilization), smallest_useful(profile, upper)


def smallest_useful(profile: Profile, utilization: float) -> int:
    """The smallest measured batch that reaches `utilization` of the peak rows per second."""
    peak = max(rows / seconds for rows, seconds in profile)
    return min(rows for rows, seconds in profile if rows / seconds >= utilization * peak)


def smallest_cpu_batch(profile: Profile, utilization: float) -> int:
    """The smallest batch of a CPU worker: with 0, or without batches to compare, one row."""
    return smallest_useful(profile, utilization) if utilization > 0 and len(profile) > 1 else 1
