"""Hash tables over the neurons of a layer that no longer changes: scores by a few of them."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.lsh import Lsh
from hogbatch.jit import kernel
from hogbatch.kernels.contract import Floats
from hogbatch.kernels.cpu.brgemm import address
from hogbatch.kernels.cpu.dots import fetch_line
from hogbatch.kernels.cpu.lsh.functions import FAMILIES, draw
from hogbatch.kernels.cpu.lsh.hashing import hash_rows
from hogbatch.kernels.cpu.lsh.selection import UNION, Finder, Hashed, Rule, find, scratch
from hogbatch.kernels.cpu.lsh.sketches import WORDS, empty_sketches
from hogbatch.kernels.cpu.lsh.tables import empty_tables, insert

AHEAD = 8  # neurons whose weights are on their way
CACHE_LINE = 64  # bytes


@kernel
def score(weights, bias, x, neurons, scores):
    """scores[A] = the scores of x[K] by `neurons`[A] of weights[H, K] and bias[H]."""
    fan_in, count = weights.shape[1], neurons.shape[0]
    for a in range(count):
        ahead = address(weights) + 4 * fan_in * neurons[min(a + AHEAD, count - 1)]
        for line in range(0, 4 * fan_in, CACHE_LINE):
            fetch_line(ahead + line)
        near, total = weights[neurons[a]], np.float32(0.0)
        for k in range(fan_in):
            total += near[k] * x[k]
        scores[a] = total + bias[neurons[a]]


class Lookup:
    """Scores a row by those of the neurons weights[H, K] that share a bucket with it.

    Of the settings only those of functions and tables count: what is found is scored, so nothing
    need choose among it beforehand.
    """

    def __init__(self, weights: Floats, bias: Floats, lsh: Lsh) -> None:
        self._weights, self._bias = weights, bias
        neurons, fan_in = weights.shape
        family = FAMILIES[lsh.family]
        functions = draw(family, fan_in, lsh.hashes, lsh.tables, lsh.bits, lsh.seed)
        codes = np.empty((neurons, lsh.tables), np.int32)
        hash_rows(functions, weights, codes)
        tables = empty_tables(lsh.tables, lsh.bits, lsh.bucket)
        order = np.random.default_rng(lsh.seed).permutation(neurons).astype(np.int32)
        insert(tables, 0, lsh.tables, codes, order, lsh.insertion == "reservoir", lsh.seed)
        everything = Rule(UNION, top=1, seen=1, capacity=neurons, random=0)
        self._finder = Finder(everything, functions, tables, empty_sketches(fan_in, 1, lsh.seed))
        self._space = scratch(1, tables, neurons, neurons, lsh.seed)

    def scores(self, x: Floats) -> Iterator[tuple[NDArray[np.int32], Floats]]:
        """The neurons found for each row of x[B, K], and its scores by them; scratch."""
        functions = self._finder.functions
        codes = np.empty((len(x), functions.tables), np.int32)
        hash_rows(functions, x, codes)
        found, scores = self._space.found[0], np.empty(len(self._bias), np.float32)
        unused = np.zeros((1, WORDS), np.int32)
        for row in range(len(x)):
            hashed = Hashed(codes[row : row + 1], unused)
            count = find(self._finder, hashed, 0, self._space)
            score(self._weights, self._bias, x[row], found[:count], scores[:count])
            yield found[:count], scores[:count]
