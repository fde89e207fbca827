"""Sketches: signs of random projections, by which the product of two vectors is estimated.

In how many buckets a neuron was found says little about its score. Of b signs of projections, two
vectors at angle a differ in b a / pi (Charikar 2002), so 512 bits, one cache line a neuron, tell
the cosine to within some hundredths; times the length of its weights, that ranks a neuron.
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.contract import Floats
from hogbatch.kernels.cpu.brgemm import address
from hogbatch.kernels.cpu.dots import fetch_line
from hogbatch.kernels.cpu.lsh.functions import SIMHASH, Functions, draw

SIGNS = 32  # in one word of a sketch
WORDS = 16
AHEAD = 16  # neurons whose sketches are on their way


class Sketches(NamedTuple):
    """Of C neurons, for vectors of d coordinates."""

    functions: Functions
    neurons: NDArray[np.int32]  # [C, WORDS]
    lengths: Floats  # [C]: of each neuron's weights
    cosines: Floats  # [SIGNS WORDS + 1]: of two vectors whose sketches differ in so many bits


def empty_sketches(dimension: int, neurons: int, seed: int) -> Sketches:
    """Allocate for `neurons` of `dimension` weights each."""
    bits = SIGNS * WORDS
    return Sketches(
        draw(SIMHASH, dimension, SIGNS, WORDS, SIGNS, seed),
        np.zeros((neurons, WORDS), np.int32),
        np.zeros(neurons, np.float32),
        np.cos(np.pi * np.arange(bits + 1) / bits).astype(np.float32),
    )


@intrinsic
def bits_set(typing, word):
    """How many bits of an int64 are 1."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(arguments[0].type, [arguments[0].type])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.ctpop.i64")
        return builder.call(function, arguments)

    return types.int64(types.int64), generate


if config.DISABLE_JIT:

    def bits_set(word):
        return (int(word) & 0xFFFFFFFFFFFFFFFF).bit_count()


@kernel
def differing(sketch, others, n):
    """Bits in which `sketch`[WORDS / 2] and others[n] differ, both int64."""
    count = 0
    for w in range(WORDS // 2):
        count += bits_set(sketch[w] ^ others[n, w])
    return count


@kernel
def rank_by_product(sketches, mark, met, limit, promises, found):
    """found[:n] = the n = min(limit, len(met)) of the neurons met[...] of the largest products
    with the vector whose sketch is mark[WORDS], as far as sketches tell, best first; returns n.

    promises[limit] is scratch.
    """
    if limit == 0:
        return 0
    neurons, own = sketches.neurons.view(np.int64), mark.view(np.int64)
    lines, size = address(neurons), 0
    for n in range(met.shape[0]):
        fetch_line(lines + 4 * WORDS * met[min(n + AHEAD, met.shape[0] - 1)])
        neuron = np.uint32(met[n])  # no negative index: none is looked for
        promise = sketches.lengths[neuron] * sketches.cosines[differing(own, neurons, neuron)]
        if size == limit and promise <= promises[size - 1]:
            continue
        size = min(size + 1, limit)
        place = size - 1
        while place > 0 and promise > promises[place - 1]:
            promises[place], found[place] = promises[place - 1], found[place - 1]
            place -= 1
        promises[place], found[place] = promise, met[n]
    return size
