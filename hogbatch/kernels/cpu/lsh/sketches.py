"""Sketches: signs of random projections, from which the dot product of two vectors is estimated.

Two vectors at angle a differ in b a / pi of b signs of projections (Charikar 2002). So 512 bits,
one cache line per output, determine the cosine to a few hundredths. Outputs are ranked by the
cosine times the norm of their weights (decision 24).
"""

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from hogbatch.jit import inlined, kernel
from hogbatch.kernels.contract import Floats
from hogbatch.kernels.cpu.intrinsics import address, prefetch_line
from hogbatch.kernels.cpu.lsh.functions import SIMHASH, HashFunctions, draw

WORD_BITS = 32
WORDS = 16  # in a sketch
PREFETCH_DISTANCE = 16  # outputs by which sketches are prefetched


class Sketches(NamedTuple):
    """Sketches of C outputs with d weights each."""

    functions: HashFunctions
    neurons: NDArray[np.int32]  # [C, WORDS]
    lengths: Floats  # [C]: Euclidean norms of the outputs' weights
    cosines: Floats  # [WORD_BITS WORDS + 1]: cosine estimate for each Hamming distance


def empty_sketches(dimension: int, neurons: int, seed: int) -> Sketches:
    """Allocate for `neurons` outputs of `dimension` weights each."""
    bits = WORD_BITS * WORDS
    return Sketches(
        draw(SIMHASH, dimension, WORD_BITS, WORDS, WORD_BITS, seed),
        np.zeros((neurons, WORDS), np.int32),
        np.zeros(neurons, np.float32),
        np.cos(np.pi * np.arange(bits + 1) / bits).astype(np.float32),
    )


@intrinsic
def popcount(typing, word):
    """Number of bits of an int64 that are 1."""

    def generate(context, builder, signature, arguments):
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


@kernel
def hamming_distance(sketch, others, n):
    """Number of bits in which `sketch`[WORDS / 2] and others[n] differ, both int64."""
    count = 0
    for w in range(WORDS // 2):
        count += popcount(sketch[w] ^ others[n, w])
    return count


@inlined
def rank_by_product(sketches, sketch, ids, limit, estimates, ranked):
    """Rank the outputs ids[...] by their estimated product with the vector sketched by `sketch`.

    ranked[:n] = the n = min(limit, len(ids)) outputs with the largest estimates, best first;
    returns n. sketch is int32[WORDS], estimates[limit] scratch.
    """
    if limit == 0:
        return 0
    neurons, own = sketches.neurons.view(np.int64), sketch.view(np.int64)
    lines, size = address(neurons), 0
    for n in range(ids.shape[0]):
        prefetch_line(lines + 4 * WORDS * ids[min(n + PREFETCH_DISTANCE, ids.shape[0] - 1)])
        neuron = np.uint32(ids[n])  # unsigned: Numba omits the check for negative indices
        distance = hamming_distance(own, neurons, neuron)
        estimate = sketches.lengths[neuron] * sketches.cosines[distance]
        if size == limit and estimate <= estimates[size - 1]:
            continue
        size = min(size + 1, limit)
        rank = size - 1
        while rank > 0 and estimate > estimates[rank - 1]:
            estimates[rank], ranked[rank] = estimates[rank - 1], ranked[rank - 1]
            rank -= 1
        estimates[rank], ranked[rank] = estimate, ids[n]
    return size
