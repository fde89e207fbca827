"""Approximate scoring of a trained output layer: hash tables over its outputs, built once."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.lsh import Lsh
from hogbatch.jit import kernel
from hogbatch.kernels.contract import Floats
from hogbatch.kernels.cpu.brgemm import address
from hogbatch.kernels.cpu.dots import prefetch_line
from hogbatch.kernels.cpu.lsh.functions import FAMILIES, draw
from hogbatch.kernels.cpu.lsh.hashing import hash_rows
from hogbatch.kernels.cpu.lsh.selection import (
    UNION,
    HashedRows,
    NeuronFinder,
    SelectionRule,
    find,
    scratch,
)
from hogbatch.kernels.cpu.lsh.sketches import WORDS, empty_sketches
from hogbatch.kernels.cpu.lsh.tables import empty_tables, insert

PREFETCH_DISTANCE = 8  # outputs by which weights are prefetched
CACHE_LINE = 64  # bytes


@kernel
def score(weights, bias, x, neurons, scores):
    """scores[A] = the scores of x[K] for `neurons`[A], with weights[H, K] and bias[H]."""
    fan_in, count = weights.shape[1], neurons.shape[0]
    for a in range(count):
        ahead = address(weights) + 4 * fan_in * neurons[min(a + PREFETCH_DISTANCE, count - 1)]
        for line in range(0, 4 * fan_in, CACHE_LINE):
            prefetch_line(ahead + line)
        row, total = weights[neurons[a]], np.float32(0.0)
        for k in range(fan_in):
            total += row[k] * x[k]
        scores[a] = total + bias[neurons[a]]


class Lookup:
    """Scores each row for the outputs of weights[H, K] that share a bucket with it.

    Only the settings of hash functions and tables are used: all outputs found are scored, so no
    selection rule is needed.
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
        rule = SelectionRule(UNION, top=1, min_buckets=1, capacity=neurons, random=0)
        self._finder = NeuronFinder(rule, functions, tables, empty_sketches(fan_in, 1, lsh.seed))
        self._space = scratch(1, tables, neurons, neurons, lsh.seed)

    def scores(self, x: Floats) -> Iterator[tuple[NDArray[np.int32], Floats]]:
        """Yield the outputs found for each row of x[B, K], and their scores, both in scratch."""
        functions = self._finder.functions
        codes = np.empty((len(x), functions.tables), np.int32)
        hash_rows(functions, x, codes)
        candidates, scores = self._space.candidates[0], np.empty(len(self._bias), np.float32)
        unused = np.zeros((1, WORDS), np.int32)
        for row in range(len(x)):
            hashed = HashedRows(codes[row : row + 1], unused)
            count = find(self._finder, hashed, 0, self._space)
            score(self._weights, self._bias, x[row], candidates[:count], scores[:count])
            yield candidates[:count], scores[:count]
