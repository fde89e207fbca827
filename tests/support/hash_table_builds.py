"""Hash tables of an output layer: the codes that they contain, and what a build has hashed."""

import threading

import numpy as np

from hogbatch.kernels.cpu.lsh.hashing import hash_rows
from hogbatch.kernels.cpu.lsh.neurons import hash_neurons
from hogbatch.workers.compute import hash_tables
from tests.support.assignments import NEURONS


def output_weights(given):
    """The weights of the output layer of an assignment, [stored rows, fan-in]."""
    weight = given.network.tensors()[-2]
    cells = given.model.params[weight.offset :][: weight.stored[0] * weight.stored[1]]
    return cells.reshape(weight.stored)


def in_tables(finder):
    """The bucket of each neuron in each table; -1 where it is in none."""
    count, width, size = finder.tables.buckets.shape
    codes = np.full((NEURONS, count), -1)
    for t in range(count):
        for code in range(width):
            held = min(size, finder.tables.counts[t, code])
            codes[finder.tables.buckets[t, code, :held], t] = code
    return codes


def true_codes(given, functions):
    """The buckets in which the neurons belong: codes[NEURONS, tables]."""
    codes = np.empty((NEURONS, functions.tables), np.int32)
    hash_rows(functions, output_weights(given)[:NEURONS], codes)
    return codes


class RecordedBuilds(list):
    """The hash functions and the hashed neurons of each part of each build, in order."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.before = lambda: None  # called before anything is hashed
        self._lock = threading.Lock()
        monkeypatch.setattr(hash_tables, "hash_neurons", self._hash)

    def _hash(self, functions, sketches, weights, ids, changed, codes):
        with self._lock:
            self.append((functions, np.array(ids)))
        self.before()
        hash_neurons(functions, sketches, weights, ids, changed, codes)

    @property
    def counts(self):
        return [len(ids) for _, ids in self]
