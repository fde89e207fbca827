"""Merge rules: how a replica's change is merged into the shared parameters.

Each rule takes two flat float32 arrays [P]: `shared`, which other workers write at the same time
without locks, and the array that the worker merges. It works in place. The caller has checked the
array for NaN and Inf, because a non-finite replica must not corrupt the shared model.

Arrays are processed in chunks that fit into a core's cache: this limits the size of temporaries and
keeps the time between reading and writing a shared cell, in which another worker's update may be
lost, short.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Merge = Callable[[Floats, Floats, float], None]


class MergeRule(NamedTuple):
    """One merge rule."""

    merge: Merge  # (shared, array, weight): merges `array` into `shared`, in place
    takes_change: bool = False  # `array` is the replica's change instead of the replica
    additive: bool = False  # shared += weight * change: devices also do it, for touched rows alone


CHUNK = 1 << 15  # floats: 128 KB of each array
MERGING_FRACTION = 0.1  # maximum fraction of a GPU's time spent on merging


def delta(shared: Floats, change: Floats, weight: float = 1.0) -> None:
    """shared += weight * change: keeps other workers' updates since the replica was pulled."""
    factor = np.float32(weight)
    with np.errstate(over="ignore", invalid="ignore"):  # other workers may have written Inf or NaN
        for c in _chunks(change):
            shared[c] += change[c] if weight == 1.0 else factor * change[c]


def damped_delta(shared: Floats, change: Floats, seen: Floats, weight: float, scale: float) -> None:
    """shared += weight * change * scale / (scale + abs(shared - seen)).

    `seen`[P] are the parameters that the change was computed with: the more others have changed a
    parameter since, the less of the change is added. See `hogbatch.store.staleness.Damping`.
    """
    factor, least = np.float32(weight * scale), np.float32(scale)
    with np.errstate(over="ignore", invalid="ignore"):
        for c in _chunks(change):
            shared[c] += change[c] * (factor / (least + np.abs(shared[c] - seen[c])))


def overwrite(shared: Floats, replica: Floats, weight: float = 1.0) -> None:
    """shared = replica, as in the paper's code: concurrent updates by other workers are lost."""
    del weight
    shared[:] = replica


def average(shared: Floats, replica: Floats, weight: float = 1.0) -> None:
    """shared = (shared + replica) / 2: keeps half of each side's change."""
    del weight
    half = np.float32(0.5)
    for c in _chunks(replica):
        # Halve before adding, because the sum could overflow; store once, because other workers
        # read `shared` all the time.
        shared[c] = shared[c] * half + replica[c] * half


# The choices of --merge, by name (hogbatch/config/train.py).
MERGE_RULES: Final = {
    "delta": MergeRule(delta, takes_change=True, additive=True),
    "overwrite": MergeRule(overwrite),
    "average": MergeRule(average),
}


def batches_between_merges(batch: float, blocking: float, background: float) -> int:
    """Number of batches between two merges for which merging takes a tenth of the time.

    `batch` is the time of one batch in seconds, `blocking` the time that training waits for each
    merge, and `background` the time of a merge that overlaps with training. A merge starts only
    after the previous one has finished.
    """
    if not batch > 0:
        return 1
    return max(1, math.ceil(blocking / (MERGING_FRACTION * batch)), math.ceil(background / batch))


def _chunks(array: Floats) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, len(array), CHUNK))
