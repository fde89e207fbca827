"""Hash tables of an output layer: their codes, what a build has hashed, and a layer with them."""

import threading

import numpy as np

from hogbatch.kernels.contract import LOSSES, OPTIMIZERS, TOTALS, Hyper
from hogbatch.kernels.cpu.lsh import network
from hogbatch.kernels.cpu.lsh.hashing import hash_rows
from hogbatch.kernels.cpu.lsh.neurons import hash_neurons
from hogbatch.kernels.cpu.model import BatchSettings
from hogbatch.workers.compute import hash_tables
from hogbatch.workers.compute.thread_state import thread_state
from hogbatch.workers.hashed import HashedLayer
from tests.support.assignments import NEURONS, WIDE_ROWS

HYPER = Hyper(0.05, 0.0, 0.9, 0.999, 1e-8)


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
    """The hash functions and the hashed neurons of each part of each build, in order.

    Only builds for the assignment `given` are recorded: threads of other tests may still build.
    """

    def __init__(self, monkeypatch, given):
        super().__init__()
        self._params = given.model.params
        self.before = lambda: None  # called before anything is hashed
        self._lock = threading.Lock()
        monkeypatch.setattr(hash_tables, "hash_neurons", self._hash)

    def _hash(self, functions, sketches, weights, ids, changed, codes):
        if np.may_share_memory(weights, self._params):
            with self._lock:
                self.append((functions, np.array(ids)))
            self.before()
        hash_neurons(functions, sketches, weights, ids, changed, codes)

    @property
    def counts(self):
        return [len(ids) for _, ids in self]


class Rig:
    """A layer with its first tables, and one thread that trains; `builds` lists what was hashed."""

    def __init__(self, monkeypatch, given, threads=1):
        self.given = given
        self.builds = RecordedBuilds(monkeypatch, given)
        self.layer = HashedLayer(given, network.train, threads, fail=print)
        self.layer.start()
        self.tables = self.layer._tables
        self.builds.clear()
        self.thread = thread_state(given, 0)

    @property
    def finder(self):
        """The current tables; a build in the background may replace them."""
        return self.tables.finder(self.tables.current)

    def train(self, updates, batch=3):
        """Make this number of updates, of `batch` rows each."""
        rows = np.random.default_rng(len(self.builds)).integers(0, WIDE_ROWS, updates * batch)
        totals, kind = np.zeros(TOTALS), OPTIMIZERS[self.given.welcome.optimizer.name]
        loss = LOSSES[self.given.network.loss]
        lease = BatchSettings(batch, loss, kind, int(self.given.fence[0]), 1)
        self.layer.train(self.thread, rows, lease, HYPER, totals)
        return totals
