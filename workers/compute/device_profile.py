"""The measured speed of a device, and what follows from it."""

from collections.abc import Callable
from functools import partial

import numpy as np

from hogbatch.data.batch import Examples
from hogbatch.workers.compute.merge_interval import MergeCost, MergeInterval

# If a batch touches less than this fraction of a sparse layer's rows, only those are exchanged.
MAX_TOUCHED_FRACTION = 0.5
MEASURED_INTERVALS = 3  # maximum number of lengths with which touched rows are measured

Profile = tuple[tuple[int, float], ...]  # (rows of a batch, its seconds)


def nearest_seconds(profile: Profile, batch: int) -> float:
    """Estimated seconds of a batch of `batch` rows, from the nearest measured size."""
    rows, seconds = min(profile, key=lambda one: abs(one[0] - batch))
    return seconds if batch <= rows else seconds * batch / rows


def touches_few_rows(train: Examples, batch: int) -> bool:
    """Whether `batch` sparse rows touch so few rows of the first layer that only those are sent."""
    touched = np.unique(train.inputs.indices[: train.inputs.indptr[batch]])
    return len(touched) < MAX_TOUCHED_FRACTION * train.features


def first_merge_interval(
    chosen: int, profile: Profile, rows: int, cost: Callable[[int], MergeCost], *, by_rows: bool
) -> MergeInterval:
    """The merge interval before training; `chosen` is that of `--merge-every`, or 0.

    `cost` returns the cost of a merge after training on a number of rows. `by_rows`: only touched
    rows are exchanged, so the cost grows with the interval.
    """
    batch = profile[-1][0]
    batches = max(1, chosen)
    for _ in range(MEASURED_INTERVALS):
        merging = cost(min(batches * batch, rows))
        interval = MergeInterval(chosen, partial(nearest_seconds, profile), merging)
        if not by_rows or interval.batches(batch) <= batches:
            break
        batches = interval.batches(batch)
    return interval
