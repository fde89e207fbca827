"""How the change that a worker made to its replica joins the shared parameters.

Three rules on flat float32 arrays [P]: `shared`, which others write at the same time without
locks; `before`, the replica as it was pulled; `after`, the replica as it is now. Each works in
place, returns whether it merged, and refuses a replica with a number that is not finite, so that
a diverged worker cannot spoil the model of all.

Work goes by chunks that stay in a core's cache: temporaries are no larger, and the gap
between reading and writing a shared cell, in which another's update may be lost, stays short.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Merge = Callable[[Floats, Floats, Floats], bool]

CHUNK = 1 << 15  # floats: 128 KB of each array


def delta(shared: Floats, before: Floats, after: Floats) -> bool:
    """shared += after - before: keeps what others did since `before` was pulled."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not all(np.isfinite(after[c] - before[c]).all() for c in _chunks(after)):
            return False
        for c in _chunks(after):
            shared[c] += after[c] - before[c]
    return True


def overwrite(shared: Floats, before: Floats, after: Floats) -> bool:
    """shared = after, as in the paper's code: what others did meanwhile is lost."""
    if not _finite(after):
        return False
    shared[:] = after
    return True


def average(shared: Floats, before: Floats, after: Floats) -> bool:
    """shared = (shared + after) / 2: half of either side's change is kept."""
    if not _finite(after):
        return False
    half = np.float32(0.5)
    for c in _chunks(after):
        # Halved before they are added, because the sum could overflow; and stored once, because
        # others read `shared` all the time.
        shared[c] = shared[c] * half + after[c] * half
    return True


MERGES: Final[dict[str, Merge]] = {"delta": delta, "overwrite": overwrite, "average": average}


def _chunks(array: Floats) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, len(array), CHUNK))


def _finite(array: Floats) -> bool:
    return all(np.isfinite(array[c]).all() for c in _chunks(array))
