"""Limits of batch sizes, in rows, where the user gives none, and the utilization of workers."""

import math
from collections.abc import Sequence
from typing import Final

Profile = Sequence[tuple[int, float]]  # (rows of a batch, seconds), as measured before training

MIN_UTILIZATION: Final = 0.5  # with the smallest batch, as a fraction of the peak rows per second
FULL_UTILIZATION: Final = 0.9  # the same with the largest batch

SMALL_CPU_BATCH: Final = 64  # at most, for one thread and fewer than MANY_ROWS training rows
LARGE_CPU_BATCH: Final = 128  # at most, for one thread and MANY_ROWS, and for a small team
ROWS_PER_MEMBER: Final = 16  # of the largest batch of a large team; from there on it is fast
MANY_ROWS: Final = 2**18
LARGEST_USEFUL_BATCH: Final = 512
BATCHES_PER_EPOCH: Final = 32  # smaller batches if an epoch would have fewer,
GPU_BATCHES_PER_EPOCH: Final = 24  # or this many on a GPU, which is slow with small batches,
SMALLEST_BATCH: Final = 8  # but with at least this many rows


def largest_cpu_batch(rows: int, members: int = 1) -> int:
    """Rows of the largest batch of a team of `members` CPU threads, for `rows` training rows.

    A small set needs many updates, and large batches would leave few in each epoch. Members of a
    team wait for each other after every layer, which takes less of the time in larger batches.
    """
    large = members > 1 or rows >= MANY_ROWS
    largest = max(LARGE_CPU_BATCH if large else SMALL_CPU_BATCH, ROWS_PER_MEMBER * members)
    return min(largest, _bounded(rows // BATCHES_PER_EPOCH))


def largest_gpu_batch(rows: int) -> int:
    """Rows of the largest useful batch of a GPU, for `rows` training rows.

    Larger ones need proportionally more rows, or do not reach losses that smaller ones reach.
    """
    return _bounded(rows // GPU_BATCHES_PER_EPOCH)


def _bounded(rows: int) -> int:
    return min(LARGEST_USEFUL_BATCH, max(SMALLEST_BATCH, rows))


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


def peak_speed(profile: Profile, teams: int = 1) -> float | None:
    """Peak rows per second of a worker that computes `teams` batches at the same time.

    That of the fastest measured batch; None if none was measured.
    """
    return teams * max(rows / seconds for rows, seconds in profile) if profile else None


def utilization(rows: int, seconds: float, peak: float | None) -> float | None:
    """Utilization of a worker that has trained on `rows` rows in `seconds` training seconds.

    None if `peak` is not known, or if no time has passed.
    """
    if peak is None or seconds <= 0:
        return None
    return rows / seconds / peak
