"""How the change that a worker made to its replica joins the shared parameters.

Three rules on flat float32 arrays [P]: `shared`, which others write at the same time without
locks, and what the worker sends. Each works in place. What is sent has been looked through: a
replica with a number that is not finite must not spoil the model of all.

Work goes by chunks that stay in a core's cache: temporaries are no larger, and the gap
between reading and writing a shared cell, in which another's update may be lost, stays short.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Merge = Callable[[Floats, Floats, float], None]

CHUNK = 1 << 15  # floats: 128 KB of each array
MERGING_FRACTION = 0.1  # of a GPU's time that may go into merging


def delta(shared: Floats, change: Floats, fraction: float = 1.0) -> None:
    """shared += share * change: keeps what others did since the replica was pulled."""
    weight = np.float32(fraction)
    with np.errstate(over="ignore", invalid="ignore"):  # with what others have written
        for c in _chunks(change):
            shared[c] += change[c] if fraction == 1.0 else weight * change[c]


def overwrite(shared: Floats, replica: Floats, fraction: float = 1.0) -> None:
    """shared = replica, as in the paper's code: what others did meanwhile is lost."""
    del fraction
    shared[:] = replica


def average(shared: Floats, replica: Floats, fraction: float = 1.0) -> None:
    """shared = (shared + replica) / 2: half of either side's change is kept."""
    del fraction
    half = np.float32(0.5)
    for c in _chunks(replica):
        # Halved before they are added, because the sum could overflow; and stored once, because
        # others read `shared` all the time.
        shared[c] = shared[c] * half + replica[c] * half


MERGES: Final[dict[str, Merge]] = {"delta": delta, "overwrite": overwrite, "average": average}


def batches_between_merges(batch: float, in_the_way: float, beside: float) -> int:
    """How many batches to train between two merges, so that merging takes a tenth of the time.

    Seconds of a batch, of what training waits for at each merge, and of what goes on beside it: no
    merge begins before the one before it is done.
    """
    if not batch > 0:
        return 1
    return max(1, math.ceil(in_the_way / (MERGING_FRACTION * batch)), math.ceil(beside / batch))


def _chunks(array: Floats) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, len(array), CHUNK))
