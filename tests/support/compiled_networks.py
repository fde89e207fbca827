"""Networks with data for the compiled loops, and for the reference that they are compared with."""

import numpy as np

from hogbatch.config.backbone import Backbone
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.kernels.contract import LOSSES, NO_SCORES, ROWS, TOTALS, UPDATES, Hyper
from hogbatch.kernels.cpu.loops import loop_for
from hogbatch.kernels.cpu.model import BatchSettings, ModelView, layer_table
from hogbatch.kernels.dropout import key_of
from hogbatch.kernels.executor import Executor, Randomness, corrected
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.model.network import Network
from tests.support.executor_runs import scores_of
from tests.support.kernel_cases import csr_set, dense_set, labels_for, read_only, score_width

FEATURES, FENCE = 9, 5
RATES = {"sgd": 0.05, "momentum": 0.01, "adagrad": 0.05, "adam": 0.01}
HIDDEN = {  # widths of hidden layers: activation
    (): "relu",
    (24,): "relu",
    (20, 12): "sigmoid",
    (18,): "tanh",
    (20, 33): "relu",
    (17, 9): "selu",
}


class Case:
    """A network, its data and the state of its optimizer; equal arguments make equal numbers.

    `leased` random rows of a set of `rows` are trained on in batches of `batch`.
    """

    def __init__(
        self,
        loss="softmax",
        optimizer="sgd",
        *,
        sparse=False,
        hidden=(24,),
        outputs=5,
        output_major=False,
        features=FEATURES,
        rows=40,
        leased,
        batch,
        l2=0.01,
        epsilon=1e-3,  # large, so that rounding does not decide the sign of a step
        dropout=None,
        backbone=None,
        augmentation=None,
    ):
        self.augmentation, self.seeded = augmentation, dropout or augmentation
        self.dropout, below = dropout, backbone and Backbone.parse(backbone)
        features = below.features if below else features
        random, self.batch = np.random.default_rng(11), batch
        self.loss, self.spec = LOSSES[loss], OPTIMIZERS[optimizer]
        self.classes, self.dimension = score_width(self.loss, outputs), [features, *hidden][-1]
        build = features, hidden, self.classes, HIDDEN[hidden], loss, output_major
        self.network = Network.build(*build, below)
        self.params = np.zeros(self.network.parameters, np.float32)
        for tensor in self.network.tensors():
            tensor.view(self.params)[...] = random.normal(0, 0.5, tensor.shape)
        self.inputs = (csr_set if sparse else dense_set)(random, features, rows)
        for cells in (self.inputs.values, self.inputs.dense):
            cells /= 4  # within 1, as standardised features are
        if below and below.layers[0].by_rows:  # ids, some of them 0 or beyond the last
            ids = below.layers[0].ids
            self.inputs.dense[:] = random.integers(0, ids + 2, self.inputs.dense.shape)
            self.inputs.dense[::3, : features // 2] = self.inputs.dense[6] = 0
        self.labels = labels_for(random, self.loss, self.classes, rows, weighted=sparse)
        size = self.params.size
        self.slots = [np.zeros(size if n < self.spec.slots else 0, np.float32) for n in range(2)]
        self.steps, self.totals = np.zeros(1, np.int64), np.zeros(TOTALS)
        self.order = random.integers(0, rows, leased)
        self.hyper = Hyper(RATES[optimizer], l2, self.spec.momentum, self.spec.beta2, epsilon)
        self.head = np.full(self.network.layer_views()[0].fan_in, -1, np.int32)
        self.fence = np.full(8, FENCE)

    @property
    def loop(self):
        """The loop that a worker would run."""
        sparse = len(self.inputs.indptr) > 0
        layers, below = self.network.layer_views(), self.network.placed_backbone()
        return loop_for(layers, sparse=sparse, hashed=False, backbone=below)

    @property
    def rows(self):
        """Inputs and labels as the compiled loops get them."""
        return read_only(self.inputs), read_only(self.labels)

    @property
    def row_labels(self):
        """Labels [N] or [N, C] and, if there are any, weights [N]."""
        rows = max(len(self.inputs.dense), len(self.inputs.indptr) - 1)
        labels = self.labels.values.reshape(rows, -1).squeeze()
        return [each for each in (labels, self.labels.weights) if len(each)]

    def model(self, own=None):
        """`own`: one thread's slots of the dense layers."""
        table, slots = layer_table(self.network.layer_views()), self.slots
        return ModelView(table, self.params, *slots, self.steps, *(own or slots))

    def lease(self, batch=None, threads=1):
        return BatchSettings(
            batch or self.batch,
            self.loss,
            self.spec.kind,
            FENCE,
            threads,
            self.dropout,
            self.augmentation,
        )

    def train(self, batch=None, *, threads=1, own=None, fence=None):
        """Train by the compiled loop, all rows in one call."""
        lease, fence = self.lease(batch, threads), self.fence if fence is None else fence
        arguments = self.model(own), *self.rows, self.order, lease, self.hyper
        self.loop.train(*arguments, self.head, fence, self.totals)
        assert (self.head == -1).all()
        return self

    def evaluate(self, stored=NO_SCORES):
        """The totals of an evaluation by the compiled loop."""
        arguments = self.model(), *self.rows, self.order, self.lease()
        self.loop.evaluate(*arguments, self.fence, self.totals, stored)
        return self.totals

    def interpret(self, batch=None):
        """Train on the reference backend, one batch at a time."""
        batch, data = batch or self.batch, (self.inputs, self.labels)
        for t, start in enumerate(range(0, len(self.order), batch), 1):
            rows, kind = self.order[start : start + batch], self.spec.kind
            hyper = corrected(kind, self.hyper, t)
            kinds, random = (self.loss, kind, hyper), None
            if self.seeded is not None:
                fraction = 0.0 if self.dropout is None else self.dropout.fraction
                random = Randomness(fraction, key_of(self.seeded.seed, t), self.augmentation)
            self.executor().train_batch(*data, rows, *kinds, self.totals, random=random)
            self.totals[[ROWS, UPDATES]] += len(rows), 1
        return self

    def executor(self):
        arrays, below = (self.params, *self.slots), self.network.placed_backbone()
        return Executor(NUMPY_KERNELS, np, self.network.layer_views(), *arrays, backbone=below)

    def scores(self):
        """The scores of the rows in `order`, [B, C]."""
        return scores_of(self.executor(), self.inputs, self.order)[:, : self.classes].copy()

    def tensors(self):
        """Copies of parameters and slots by name, those of an output-major layer as stored."""
        flats = {"params": self.params, "first": self.slots[0], "second": self.slots[1]}
        return {
            f"{kind} {name}": tensor
            for kind, flat in flats.items()
            if flat.size
            for name, tensor in self.network.from_stored(flat.copy()).items()
        }

    def is_finite(self):
        """Whether all numbers of the model and its optimizer are."""
        return all(np.isfinite(each).all() for each in (self.params, *self.slots, self.totals))
