"""A network with an output-major last layer, and data, for the compiled loop and the reference."""

import numpy as np

from hogbatch import kernels
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.data.batch import Labels
from hogbatch.kernels.contract import LOSSES, ROWS, TOTALS, UPDATES, Hyper
from hogbatch.kernels.cpu import exact
from hogbatch.kernels.cpu.lsh import network as hashed
from hogbatch.kernels.cpu.lsh.functions import SIMHASH, draw
from hogbatch.kernels.cpu.lsh.selection import UNION, NeuronFinder, SelectionRule, scratch
from hogbatch.kernels.cpu.lsh.sketches import empty_sketches
from hogbatch.kernels.cpu.lsh.tables import empty_tables, insert
from hogbatch.kernels.cpu.model import BatchSettings, ModelView
from hogbatch.kernels.executor import Executor as Interpreted, corrected
from hogbatch.model.network import Network
from tests.support.kernel_cases import csr_set, dense_set, labels_for, read_only
from tests.support.stored import to_stored

FEATURES, CLASSES, SET = 9, 43, 30  # 43 is stored as 48
BATCH, RAGGED, FENCE = 7, 4, 5
WIDE_LOSSES = ("softmax", "multilabel-softmax", "multilabel")
RATES = {"sgd": 0.05, "momentum": 0.01, "adagrad": 0.05, "adam": 0.01}
HIDDEN = {(18,): "tanh", (20, 33): "relu"}
ALL = SelectionRule(UNION, 1, 1, CLASSES, 0)


def finder_of(dimension, classes, rule=ALL, found=None, family=SIMHASH, seed=0):
    """A finder with `found` (default: all outputs) in every bucket of its three tables."""
    functions = draw(family, dimension, 2, 3, 2, seed)
    tables, found = empty_tables(3, 2, classes), np.arange(classes) if found is None else found
    for code in range(4):
        codes = np.full((classes, 3), code, np.int32)
        insert(tables, 0, 3, codes, np.array(found, np.int32), False, 0)
    return NeuronFinder(rule, functions, tables, empty_sketches(dimension, classes, seed))


class Case:
    """A network, its data and its optimizer state; equal arguments give equal numbers."""

    def __init__(
        self,
        loss="multilabel-softmax",
        optimizer="sgd",
        *,
        sparse=False,
        hidden=(18,),
        classes=CLASSES,
        rows=SET,
    ):
        random = np.random.default_rng(11)
        self.network = Network.build(FEATURES, hidden, classes, HIDDEN[hidden], loss, True)
        self.classes, self.dimension = classes, hidden[-1]
        self.params = np.zeros(self.network.parameters, np.float32)
        for tensor in self.network.tensors():
            tensor.view(self.params)[...] = random.normal(0, 0.5, tensor.shape)
        self.inputs = (csr_set if sparse else dense_set)(random, FEATURES, rows)
        for cells in (self.inputs.values, self.inputs.dense):
            cells /= 4
        self.loss, self.spec = LOSSES[loss], OPTIMIZERS[optimizer]
        self.labels = labels_for(random, self.loss, classes, rows)
        size = self.params.size
        self.slots = [np.zeros(size if n < self.spec.slots else 0, np.float32) for n in range(2)]
        self.steps, self.totals = np.zeros(1, np.int64), np.zeros(TOTALS)
        self.order = random.integers(0, rows, 2 * BATCH + RAGGED)
        momentum, beta2 = self.spec.momentum, self.spec.beta2
        self.hyper = Hyper(RATES[optimizer], 0.01, momentum, beta2, 1e-3)
        self.fence = np.full(8, FENCE)
        self.place = np.full(classes, -1, np.int32)
        self.head = np.full(self.network.layer_views()[0].fan_in, -1, np.int32)
        self.changed = np.zeros(classes, np.uint8)

    @property
    def rows(self):
        """Inputs and labels as the compiled loops get them."""
        return read_only(self.inputs), read_only(self.labels)

    def model(self, own=None):
        """`own`: one thread's slots of the dense layers."""
        plan = np.array(self.network.layer_views(), np.int64)
        return ModelView(plan, self.params, *self.slots, self.steps, *(own or self.slots))

    def lease(self, batch=BATCH, threads=1):
        return BatchSettings(batch, self.loss, self.spec.kind, FENCE, threads)

    def train(self, finder=None, *, batch=BATCH, threads=1, own=None, fence=None):
        """Train with the compiled loop, all rows in one call."""
        finder = finder or finder_of(self.dimension, self.classes)
        space = scratch(batch, finder.tables, self.classes, finder.rule.capacity, 1)
        seat = hashed.HashedThread(self.head, space, self.place, self.changed)
        hashed.train(
            *(self.model(own), finder, *self.rows, self.order),
            *(self.lease(batch, threads), self.hyper, seat),
            *(self.fence if fence is None else fence, self.totals),
        )
        assert (self.place == -1).all() and (self.head == -1).all()
        assert not space.bucket_counts.any()
        return self

    def interpret(self):
        """Train on the reference backend, one batch after the other, with all outputs."""
        network, totals = self.reference(), self.totals
        for t, start in enumerate(range(0, len(self.order), BATCH), 1):
            rows = self.order[start : start + BATCH]
            hyper = corrected(self.spec.kind, self.hyper, t)
            kinds = self.loss, self.spec.kind, hyper
            network.train_batch(self.inputs, self.labels, rows, *kinds, totals)
            totals[[ROWS, UPDATES]] += len(rows), 1
        return self

    def evaluate(self):
        """The totals of an exact evaluation."""
        rest = self.lease(), self.fence, self.totals
        exact.evaluate(self.model(), *self.rows, self.order, *rest)
        return self.totals

    def reference(self):
        plan = self.network.layer_views()
        return Interpreted(kernels.load("reference"), np, plan, self.params, *self.slots)

    def scores(self):
        """The scores of the rows in `order`, [B, C]."""
        return self.reference().scores(self.inputs, self.order)[:, : self.classes].copy()

    def labels_of(self, rows):
        """The distinct labels of `rows`, ascending."""
        if not len(self.labels.indptr):
            return np.unique(self.labels.values[rows]).astype(int)
        starts, stops = self.labels.indptr[rows], self.labels.indptr[rows + 1]
        spans = [self.labels.indices[a:b] for a, b in zip(starts, stops, strict=True)]
        return np.unique(np.concatenate(spans)).astype(int)

    def cut(self, neurons):
        """A case reduced to the outputs `neurons`, ascending; other outputs' labels are removed."""
        small = Case.__new__(Case)
        small.__dict__ |= self.__dict__
        small.network = Network.build(
            *(FEATURES, tuple(layer.width for layer in self.network.layers[:-1]), len(neurons)),
            *(self.network.layers[0].activation, self.network.loss, True),
        )
        small.classes = len(neurons)
        small.params = self._cut(self.params, small.network, neurons)
        small.slots = [self._cut(slot, small.network, neurons) for slot in self.slots]
        small.labels, small.totals = self._renamed(neurons), np.zeros(TOTALS)
        return small

    def _cut(self, flat, network, neurons):
        if not flat.size:
            return flat.copy()
        tensors = self.network.from_stored(flat)
        last = len(network.layers) - 1
        for name in (f"layers.{last}.weight", f"layers.{last}.bias"):
            tensors[name] = tensors[name][neurons]
        params = np.zeros(network.parameters, np.float32)
        to_stored(network, tensors, params)
        return params

    def _renamed(self, neurons):
        place = np.full(self.classes, -1)
        place[neurons] = np.arange(len(neurons))
        labels = self.labels
        if not len(labels.indptr):
            return labels._replace(values=place[labels.values.astype(int)].astype(np.float32))
        kept = place[labels.indices] >= 0
        indptr = np.concatenate(([0], np.cumsum(kept)))[labels.indptr]
        indices = place[labels.indices[kept]].astype(np.int32)
        return Labels(labels.values, indptr.astype(np.int64), indices)

    def tensors(self):
        """Copies of parameters and slots by name, those of the last layer output-major."""
        flats = {"params": self.params, "first": self.slots[0], "second": self.slots[1]}
        return {
            f"{kind} {name}": tensor
            for kind, flat in flats.items()
            if flat.size
            for name, tensor in self.network.from_stored(flat.copy()).items()
        }
