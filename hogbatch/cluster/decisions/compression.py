"""Smaller changes for slow links: bfloat16, or the largest numbers only, with error feedback.

What a server did not send is its residual, which it adds to its next change, so that nothing is
lost in the long run (Stich, Cordonnier & Jaggi 2018, "Sparsified SGD with Memory", arXiv
1809.07599; Karimireddy et al. 2019, "Error Feedback Fixes SignSGD and other Gradient Compression
Schemes", arXiv 1901.09847). Without it, top-k would never send most parameters.

All functions are exact operations on single numbers, so all servers get the same bits from the same
messages, on any processor.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Halves = NDArray[np.uint16]
Indices = NDArray[np.int32]

TOP_FRACTION: Final = 32  # one of so many numbers is sent by top-k
_QUIET: Final = np.uint32(0x0040_0000)  # makes a NaN quiet; its upper half stays a NaN
_INFINITY: Final = np.uint32(0x7F80_0000)


def to_bfloat16(values: Floats) -> Halves:
    """Round `values`[n] to bfloat16, to nearest, ties to even; returns their bits, uint16[n].

    NaN stays NaN and infinity infinity; numbers beyond the largest bfloat16 become infinity.
    """
    bits = np.ascontiguousarray(values).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = bits + (np.uint32(0x7FFF) + even)
    nan = (bits & np.uint32(0x7FFF_FFFF)) > _INFINITY
    if nan.any():
        rounded[nan] = bits[nan] | _QUIET
    return (rounded >> np.uint32(16)).astype(np.uint16)


def from_bfloat16(halves: Halves) -> Floats:
    """The float32[n] numbers of bfloat16 bits, uint16[n]; exact."""
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


def top_count(size: int) -> int:
    """How many of `size` numbers top-k sends: one of 32, at least one."""
    return min(size, max(1, size // TOP_FRACTION))


def top_k(values: Floats, count: int) -> tuple[Indices, Floats]:
    """The `count` numbers of `values`[n] with the largest magnitude.

    Returns their indices, int32[count], and the numbers, float32[count]. Indices are in
    increasing order. NaN counts as the largest, so that it is not kept forever.
    """
    if count >= len(values):
        indices = np.arange(len(values), dtype=np.int32)
    else:
        first = len(values) - count
        largest = np.argpartition(np.abs(values), first)[first:]
        indices = np.sort(largest).astype(np.int32)
    return indices, values[indices]


def add_top_k(total: Floats, indices: Indices, values: Floats) -> None:
    """total[indices] += values, in place; the indices of one server differ from each other.

    ValueError if an index is not one of `total`[n].
    """
    if len(indices) and (indices.min() < 0 or indices.max() >= len(total)):
        raise ValueError(
            f"expected indices from 0 to {len(total) - 1}; got {indices.min()} to {indices.max()}"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # the merged model is checked as a whole
        total[indices] += values
