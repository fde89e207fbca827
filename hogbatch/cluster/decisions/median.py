"""The geometric median of servers' changes, which a minority of broken servers cannot move far.

Block coordinate geometric median descent (BGMD; Acharya et al. 2021, "Robust Training in High
Dimensions via Block Coordinate Geometric Median Descent", arXiv 2106.08882): the changes are
merged in the blocks of parameters with the largest sum of squared norms over all servers only, by
their geometric median, and the rest is kept for later merges (error feedback). The paper keeps the
mean of all rests in one memory; here each server keeps its own rest, which needs no transfer and,
as long as the blocks of all servers are merged with equal weights, has the same mean.

A server with a norm that is not finite is excluded. With weights, what is said here about
a minority of servers applies to the sum of their weights.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

BLOCK: Final = 64  # parameters
FRACTION: Final = 0.1  # of the blocks that are merged
ITERATIONS: Final = 100  # at most
TOLERANCE: Final = 1e-6  # relative change of the weights at which iterations end
SMOOTHING: Final = 1e-6  # smallest distance, relative to the median distance
_CHUNK: Final = 1 << 14  # numbers of each server


def block_count(size: int) -> int:
    """The number of blocks of `size` parameters."""
    return -(-size // BLOCK)


def chosen_count(size: int) -> int:
    """How many blocks of `size` parameters are merged; at least one."""
    return min(block_count(size), max(1, math.ceil(FRACTION * block_count(size))))


def block_norms(values: Floats) -> Floats:
    """The squared norms of the blocks of `values`[P], float32[blocks]; inf if one overflows."""
    whole = len(values) // BLOCK * BLOCK
    norms = np.zeros(block_count(len(values)), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        blocks = values[:whole].reshape(-1, BLOCK)
        norms[: len(blocks)] = np.einsum("bi,bi->b", blocks, blocks)
        if whole < len(values):
            norms[-1] = np.dot(values[whole:], values[whole:])
    return norms


def finite_servers(norms: Floats) -> NDArray[np.bool_]:
    """Which servers take part, bool[N]: those with finite `norms`[N, blocks]."""
    finite: NDArray[np.bool_] = np.logical_and.reduce(np.isfinite(norms), axis=1)
    return finite


def chosen_blocks(norms: Floats, count: int) -> NDArray[np.intp]:
    """The `count` blocks with the largest sum of `norms`[N, blocks], in increasing order.

    Servers that are not finite do not count; of equal blocks, the first are chosen.
    """
    total = np.zeros(norms.shape[1], np.float64)
    for each in norms[finite_servers(norms)]:
        total += each
    return np.sort(np.argsort(-total, kind="stable")[:count])


def block_slices(blocks: NDArray[np.intp], size: int) -> NDArray[np.intp]:
    """The indices of all parameters of `blocks`, in increasing order; the last may be shorter."""
    indices = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()
    return indices[indices < size]


def median_weights(points: Floats, weights: Doubles, finite: NDArray[np.bool_]) -> Doubles:
    """The weights[N] with which the sum of `points`[N, n] is their geometric median.

    The geometric median minimizes the sum of the distances to all points, times their `weights`.
    Weiszfeld's iterations, started at the median of each coordinate: the next weight of a point is
    inversely proportional to its distance, where distances below a small part of the usual distance
    are increased to it. Points that are not `finite`[N] have weight 0; so have all if none is, or
    if the weights of the others are 0.
    """
    used = finite & np.isfinite(points).all(axis=1) & (weights > 0)
    shares = np.zeros(len(points))
    if not used.any():
        return shares
    own, mass = points[used], weights[used] / weights[used].sum()
    distances = _distances(own, np.median(own, axis=0))
    smallest = max(SMOOTHING * float(np.median(distances)), np.finfo(np.float64).tiny)
    current = _shares(mass, distances, smallest)
    for _ in range(ITERATIONS):
        following = _shares(mass, _distances(own, combined(own, current)), smallest)
        moved = np.abs(following - current).max()
        current = following
        if moved <= TOLERANCE:
            break
    shares[used] = current
    return shares


def combined(points: Floats, weights: Doubles) -> Floats:
    """The sum of weights[N] times `points`[N, n] in order, float32[n].

    Points of weight 0 are left out, so that they may be NaN. Single additions and multiplications:
    the same bits on all servers.
    """
    total = np.zeros(points.shape[1], np.float32)
    with np.errstate(over="ignore"):
        for point, weight in zip(points, weights, strict=True):
            if weight != 0.0:
                total += np.float32(weight) * point
    return total


def _shares(mass: Doubles, distances: Doubles, smallest: float) -> Doubles:
    shares: Doubles = mass / np.maximum(distances, smallest)
    shares /= shares.sum()
    return shares


def _distances(points: Floats, center: Floats) -> Doubles:
    squares = np.zeros(len(points))
    for start in range(0, points.shape[1], _CHUNK):
        here = slice(start, start + _CHUNK)
        difference = points[:, here].astype(np.float64) - center[here]
        squares += np.einsum("ni,ni->n", difference, difference)
    distances: Doubles = np.sqrt(squares)
    return distances
