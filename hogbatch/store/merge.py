"""Merge rules: how a replica's change is merged into the shared parameters.

Each rule takes two flat float32 arrays [P]: `shared`, which other workers write at the same time
without locks, and the array that the worker merges. It works in place. The caller has checked the
array for NaN and Inf, because a non-finite replica must not corrupt the shared model.

Arrays are processed in chunks that fit into a core's cache, so that temporaries are small and the
time between reading and writing a shared cell, in which an update may be lost, is short.
"""

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from hogbatch.kernels.contract import Floats
from hogbatch.store.layout import chunks

Merge = Callable[[Floats, Floats, float], None]


class MergeRule(NamedTuple):
    """One merge rule."""

    merge: Merge  # (shared, array, weight): merges `array` into `shared`, in place
    # shared += weight * change: `array` is the change of the replica, not the replica; devices also
    # do it, for touched rows alone
    additive: bool = False


CHUNK = 1 << 15  # floats: 128 KB of each array
DAMPING_SCALE = 1 / 300  # change of a parameter by others that halves a stale change of it
MERGING_FRACTION = 0.1  # maximum fraction of a GPU's time spent on merging


def delta(shared: Floats, change: Floats, weight: float = 1.0) -> None:
    """shared += weight * change: keeps other workers' updates since the replica was pulled."""
    factor = np.float32(weight)
    with np.errstate(over="ignore", invalid="ignore"):  # other workers may have written Inf or NaN
        for c in chunks(len(change), CHUNK):
            shared[c] += change[c] if weight == 1.0 else factor * change[c]


def average(shared: Floats, replica: Floats, weight: float = 1.0) -> None:
    """shared = (shared + replica) / 2: keeps half of each side's change."""
    del weight
    half = np.float32(0.5)
    for c in chunks(len(replica), CHUNK):
        # Halve before adding, because the sum could overflow; store once, because other workers
        # read `shared` all the time.
        shared[c] = shared[c] * half + replica[c] * half


# The choices of --merge, by name (hogbatch/config/train.py).
MERGE_RULES: Final = {
    "delta": MergeRule(delta, additive=True),
    "average": MergeRule(average),
}


def stale_weight(rule: str, staleness: int) -> float:
    """The weight of a change, by a rule of --staleness-damping.

    The staleness tau is the number of updates by other workers between the pull that the change is
    based on and its merge. At full weight, a stale change repeats these updates, and the model
    overshoots.

    off         1
    root        1 / sqrt(1 + tau)
    per-weight  s / (s + |d|) for each parameter, where d is its change by others and s the scale
                DAMPING_SCALE. The device does this when it adds a change; where the host adds it,
                or only touched rows of a sparse layer are exchanged, the weight is that of `root`.
    """
    return 1.0 if rule == "off" else 1 / math.sqrt(1 + staleness)


def batches_between_merges(batch: float, blocking: float, background: float) -> int:
    """Number of batches between two merges for which merging takes a tenth of the time.

    `batch` is the time of one batch in seconds, `blocking` the time that training waits for each
    merge, and `background` the time of a merge that overlaps with training. A merge starts only
    after the previous one has finished.
    """
    if not batch > 0:
        return 1
    return max(1, math.ceil(blocking / (MERGING_FRACTION * batch)), math.ceil(background / batch))
