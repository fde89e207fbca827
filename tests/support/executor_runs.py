"""Networks with data for the executor, on any backend and in any layout."""

import numpy as np

from hogbatch.config.backbone import Backbone
from hogbatch.kernels.contract import LOSS, LOSSES, SGD, TOTALS, Hyper
from hogbatch.kernels.executor import Executor, corrected
from hogbatch.model.network import Network
from tests.support.kernel_cases import csr_set, dense_set, labels_for, score_width, some_rows

FEATURES, HIDDEN, CLASSES, ROWS = 9, 18, 21, 40  # 21 classes are stored as 32
HYPER = Hyper(rate=0.05, l2=0.01, momentum=0.5, beta2=0.75, epsilon=0.01)
PLAIN = Hyper(rate=1e-3, l2=0.0, momentum=0.0, beta2=0.0, epsilon=0.0)  # small: no row is bounded


def scores_of(executor, inputs, rows):
    """The scores [B, H] of any number of rows, computed at a time; valid until the next call."""
    usual, executor._max_scores = executor._max_scores, 1 << 62
    space, last = executor._forward(inputs, rows, rows), len(executor._views) - 1
    executor._apply(last, space, inputs, rows)
    executor._max_scores = usual
    return space.activated[last]


class Run:
    """A network with its data, in the precision of `dtype`, on `backend`.

    Equal arguments make equal numbers; so does another layout. `options` are those of the executor.
    """

    def __init__(
        self,
        backend,
        loss="softmax",
        activation="tanh",
        *,
        sparse=False,
        slots=2,
        hidden=(HIDDEN,),
        dtype=np.float32,
        output_major=False,
        rows=ROWS,
        backbone=None,
        **options,
    ):
        random, outputs = np.random.default_rng(3), score_width(LOSSES[loss], CLASSES)
        below = backbone and Backbone.parse(backbone)
        features = below.features if below else FEATURES
        build = features, hidden, outputs, activation, loss
        self.network = Network.build(*build, output_major, below)
        plain = Network.build(*build, backbone=below)
        self.params = np.zeros(self.network.parameters, dtype)
        for tensor, other in zip(self.network.tensors(), plain.tensors(), strict=True):
            numbers = random.normal(0, 0.5, other.shape)
            tensor.view(self.params)[...] = numbers.T if self._transposed(tensor) else numbers
        self.slots = [np.zeros(self.params.size if n < slots else 0, dtype) for n in range(2)]
        self.inputs = (csr_set if sparse else dense_set)(random, features, rows)
        if below and below.layers[0].by_rows:  # ids, some of them 0 or beyond the last
            ids = below.layers[0].ids
            self.inputs.dense[:] = random.integers(0, ids + 2, self.inputs.dense.shape)
            self.inputs.dense[::3, : features // 2] = self.inputs.dense[6] = 0
        self.loss = LOSSES[loss]
        self.labels = labels_for(random, self.loss, outputs, rows, weighted=sparse)
        self.rows = rows
        self.backend, self.options, self.totals = backend, options, np.zeros(TOTALS)

    def _transposed(self, tensor):
        last = len(self.network.layers) - 1
        return self.network.layers[last].output_major and tensor.name == f"layers.{last}.weight"

    def executor(self, *flat):
        """An executor on these arrays, or on those of the host."""
        backend, layers = self.backend, self.network.layer_views()
        flat = flat or (self.params, *self.slots)
        options = {"backbone": self.network.placed_backbone(), **self.options}
        return Executor(backend.module, backend.device.xp, layers, *flat, **options)

    def train(self, rows, optimizer, hyper):
        return self._batch("train_batch", rows, self.loss, optimizer, hyper)

    def train_some(self, optimizer, batch=13, **numbers):
        """Three batches of random rows."""
        random = np.random.default_rng(5)
        for t in range(1, 4):
            rows = some_rows(random, batch, of=self.rows)
            hyper = corrected(optimizer.kind, HYPER._replace(**numbers), t)
            self.train(rows, optimizer.kind, hyper)
        return self

    def evaluate(self, rows):
        """Return the totals of `rows`."""
        self.totals = np.zeros(TOTALS)
        self._batch("evaluate_batch", rows, self.loss)
        return self.totals

    def store(self, rows, stored):
        """Evaluate `rows`[B], and store their scores."""
        there = [self.backend.move(each) for each in (self.inputs, self.labels, rows, self.totals)]
        scores = self.backend.move(stored)
        executor = self.executor(*map(self.backend.move, (self.params, *self.slots)))
        executor.evaluate_batch(*there[:3], self.loss, there[3], scores)
        self.backend.fetch(scores, stored)

    def mean_loss(self, params, rows):
        self.params = params
        return self.evaluate(rows)[LOSS] / len(rows)

    def scores(self, rows):
        executor = self.executor(*map(self.backend.move, (self.params, *self.slots)))
        there = scores_of(executor, *map(self.backend.move, (self.inputs, rows)))
        here = np.empty(there.shape, there.dtype)
        self.backend.device.to_host(there, here)
        return here

    def _batch(self, method, rows, *arguments):
        """Move everything to the device, run one batch, and move everything back."""
        here = (self.params, *self.slots)
        there = tuple(map(self.backend.move, here))
        data = [self.backend.move(each) for each in (self.inputs, self.labels, rows, self.totals)]
        getattr(self.executor(*there), method)(*data[:3], *arguments, data[3])
        self.backend.fetch((*there, data[3]), (*here, self.totals))
        return self

    def tensors(self):
        """The tensors of params and slots, without padding and input-major."""
        return [
            (tensor.name, found.T if self._transposed(tensor) else found)
            for flat in (self.params, *self.slots)
            if flat.size
            for tensor in self.network.tensors()
            for found in [tensor.view(flat)]
        ]

    def padding(self, flat):
        """The cells of params[P] that belong to no tensor."""
        real = np.zeros(flat.size, bool)
        for tensor in self.network.tensors():
            tensor.view(real)[...] = True
        return flat[~real]


def assert_gradient_of_the_loss(run):
    """Compare the step of a batch with finite differences of the loss, in six directions."""
    random, rows, start = np.random.default_rng(1), np.array([6, 1, 3, 3, 0]), run.params.copy()
    run.train(rows, SGD, PLAIN)
    gradient = (start - run.params) / PLAIN.rate
    for _ in range(6):
        direction = random.normal(size=start.size)
        near = [run.mean_loss(start + h * direction, rows) for h in (-1e-6, 1e-6)]
        slope = (near[1] - near[0]) / 2e-6
        np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-5, atol=1e-6)


def assert_same_model(run, expected, rtol=1e-3, atol=1e-5):
    """Compare the tensors; `atol` grows with them, since slopes are exact to the rounding of 1."""
    for (name, got), (_, exact) in zip(run.tensors(), expected.tensors(), strict=True):
        scale = max(1.0, np.abs(exact).max())
        np.testing.assert_allclose(got, exact, rtol=rtol, atol=atol * scale, err_msg=name)
    np.testing.assert_allclose(run.totals, expected.totals, rtol=1e-4, atol=1e-5)
