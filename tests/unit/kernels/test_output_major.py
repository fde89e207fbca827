"""Output-major layers, and batches scored in parts, give the same results as other layers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.data.batch import Inputs
from hogbatch.kernels.contract import LOSS, LOSSES, SGD, SKIPPED, SKIPPED_ROW, TOTALS, Floats, Hyper
from hogbatch.kernels.executor import Executor, corrected
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.kernels.gpu.graph import CapturedSteps
from hogbatch.model.network import Network
from tests.support.kernel_backends import KERNELS, Backend
from tests.support.kernel_cases import FORMS, csr_set, dense_set, labels_for, overflowing, some_rows
from tests.support.pairs import pairs
from tests.support.stored import to_stored

FEATURES, CLASSES, ROWS = 9, 21, 40  # 21 is stored as 32
HYPER = Hyper(rate=0.05, l2=0.01, momentum=0.5, beta2=0.75, epsilon=0.01)
WIDE_LOSSES = [name for name in LOSSES if name.startswith(("softmax", "multilabel"))]

LAYOUTS = {"by input": False, "by neuron": True}

layouts = pytest.mark.parametrize("output_major", LAYOUTS.values(), ids=LAYOUTS)
forms = pytest.mark.parametrize("sparse", FORMS.values(), ids=FORMS)


def transposed(tensors, last):
    """Return the tensors of a model with the last layer transposed."""
    name = f"layers.{last}.weight"
    return {**tensors, name: np.ascontiguousarray(tensors[name].T)}


class Run:
    """A model with its data on `backend`; the same arguments but the layout make the same model."""

    def __init__(
        self, backend, *, output_major=False, loss="softmax", hidden=(18,), sparse=False, **network
    ):
        random = np.random.default_rng(3)
        build = FEATURES, hidden, CLASSES, "tanh", loss
        self.model, plain = Network.build(*build, output_major=output_major), Network.build(*build)
        tensors = {
            each.name: random.normal(0, 0.5, each.shape).astype(np.float32)
            for each in plain.tensors()
        }
        params = np.empty(self.model.parameters, np.float32)
        stored = transposed(tensors, len(hidden)) if output_major else tensors
        to_stored(self.model, stored, params)
        self.start = params.copy()
        self.inputs: Inputs = (csr_set if sparse else dense_set)(random, FEATURES, ROWS)
        self.kind = LOSSES[loss]
        self.labels = labels_for(random, self.kind, CLASSES, ROWS)
        flat = params, np.zeros_like(params), np.zeros_like(params)
        self.backend, self.flat = backend, tuple(map(backend.move, flat))
        self.network = Executor(
            backend.module, backend.device.xp, self.model.layer_views(), *self.flat, **network
        )
        self.totals = backend.device.zeros(TOTALS, np.float64)

    def train(self, rows, optimizer, hyper):
        data = [self.backend.move(each) for each in (self.inputs, self.labels, rows)]
        self.network.train_batch(*data, self.kind, optimizer, hyper, self.totals)

    def train_some(self, optimizer, batch=13, **numbers):
        """Three batches of random rows."""
        random = np.random.default_rng(5)
        for t in range(1, 4):
            rows = some_rows(random, batch, of=ROWS)
            hyper = corrected(optimizer.kind, HYPER._replace(**numbers), t)
            self.train(rows, optimizer.kind, hyper)

    def evaluate(self, rows):
        """Return the totals of `rows`."""
        self.totals.fill(0)
        data = [self.backend.move(each) for each in (self.inputs, self.labels, rows)]
        self.network.evaluate_batch(*data, self.kind, self.totals)
        return self.host(self.totals)

    def scores(self, rows):
        inputs, rows = self.backend.move(self.inputs), self.backend.move(rows)
        return self.host(self.network.scores(inputs, rows))

    def host(self, there):
        here = np.empty(there.shape, there.dtype)
        self.backend.device.to_host(there, here)
        return here

    def numbers(self):
        """Params and slots as they are stored, and totals."""
        return [self.host(each) for each in (*self.flat, self.totals)]

    def tensors(self):
        """Return the tensors of params and slots, without padding and input-major."""
        found = []
        for flat in self.flat:
            tensors, last = (
                self.model.from_stored(self.host(flat).copy()),
                len(self.model.layers) - 1,
            )
            lies_other = self.model.layers[last].output_major
            found.append(transposed(tensors, last) if lies_other else tensors)
        return found


def assert_same_model(run, expected):
    for got, exact in zip(run.tensors(), expected.tensors(), strict=True):
        assert list(got) == list(exact)
        for name, tensor in got.items():
            assert_allclose(tensor, exact[name], rtol=1e-3, atol=1e-5, err_msg=name)
    assert_allclose(run.host(run.totals), expected.host(expected.totals), rtol=1e-4, atol=1e-5)


@forms
def test_the_layout_does_not_change_the_scores(kernels, sparse):
    twin, plain = (Run(kernels, output_major=each, sparse=sparse) for each in (True, False))
    rows = np.array([6, 1, 39, 1])
    scores = twin.scores(rows)
    assert_allclose(scores, plain.scores(rows), rtol=1e-4, atol=1e-5)
    assert scores[:, :CLASSES].all() and not scores[:, CLASSES:].any()


@pairs(kernels=KERNELS, loss=WIDE_LOSSES, optimizer=OPTIMIZERS)
def test_the_layout_does_not_change_training(kernels, loss, optimizer):
    twin, plain = (Run(kernels, output_major=each, loss=loss) for each in (True, False))
    for run in (twin, plain):
        run.train_some(optimizer)
    assert_same_model(twin, plain)


@pairs(kernels=KERNELS, hidden=[(18,), (18, 5)], sparse=FORMS)
def test_an_output_major_layer_works_above_any_hidden_layers(kernels, hidden, sparse):
    for optimizer in (OPTIMIZERS["sgd"], OPTIMIZERS["adam"]):
        twin, plain = (
            Run(kernels, output_major=each, hidden=hidden, sparse=sparse) for each in (True, False)
        )
        for run in (twin, plain):
            run.train_some(optimizer)
        assert_same_model(twin, plain)


@pairs(kernels=KERNELS, output_major=LAYOUTS, loss=WIDE_LOSSES, optimizer=OPTIMIZERS)
def test_batches_in_parts_train_the_same(kernels, output_major, loss, optimizer):
    parts, whole = (
        Run(kernels, output_major=output_major, loss=loss, **limit)
        for limit in ({"max_scores": 5 * 32}, {})  # 13 rows: 5 and 5 and 3
    )
    for run in (parts, whole):
        run.train_some(optimizer)
    assert_same_model(parts, whole)


@pairs(kernels=KERNELS, output_major=LAYOUTS, sparse=FORMS, max_scores=[1, 160, 416, 417])
def test_parts_of_any_size_over_any_inputs(kernels, output_major, sparse, max_scores):
    parts, whole = (
        Run(kernels, output_major=output_major, sparse=sparse, hidden=(18, 5), **limit)
        for limit in ({"max_scores": max_scores}, {})
    )
    for run in (parts, whole):
        run.train_some(OPTIMIZERS["momentum"])
    assert_same_model(parts, whole)
    rows = np.arange(ROWS)
    assert_allclose(parts.evaluate(rows), whole.evaluate(rows), rtol=1e-5)
    assert_allclose(parts.scores(rows), whole.scores(rows), rtol=1e-5, atol=1e-6)


def test_rows_of_a_part_are_bounded_as_in_the_whole_batch(kernels):
    parts, whole = (Run(kernels, output_major=True, **limit) for limit in ({"max_scores": 160}, {}))
    for run in (parts, whole):
        run.train_some(OPTIMIZERS["sgd"], rate=20.0, l2=0.0)  # 20 |x|² / 13 is more than 10
    assert_same_model(parts, whole)


def test_a_linear_model_is_scored_in_one_part(kernels):
    parts, whole = (
        Run(kernels, hidden=(), sparse=True, **limit) for limit in ({"max_scores": 1}, {})
    )
    for run in (parts, whole):
        run.train_some(OPTIMIZERS["sgd"])
    for got, exact in zip(parts.numbers(), whole.numbers(), strict=True):
        assert_allclose(got, exact, rtol=1e-5)


@overflowing
@layouts
def test_rows_that_are_not_finite_are_skipped_in_each_part(kernels, output_major):
    parts, clean = (
        Run(kernels, output_major=output_major, **limit) for limit in ({"max_scores": 2 * 32}, {})
    )
    parts.inputs.dense[[7, 9, 12]] = np.nan
    parts.train(np.array([3, 7, 9, 1, 12]), SGD, HYPER._replace(rate=0.05, l2=0.0))
    clean.train(np.array([3, 1]), SGD, HYPER._replace(rate=0.02, l2=0.0))  # means over 5 and 2
    assert parts.host(parts.totals)[SKIPPED] == 3
    assert parts.host(parts.totals)[SKIPPED_ROW] == 12 + 1
    assert_allclose(parts.numbers()[0], clean.numbers()[0], rtol=1e-4, atol=1e-6)
    assert parts.host(parts.totals)[LOSS] == pytest.approx(clean.host(clean.totals)[LOSS], rel=1e-5)


@pairs(kernels=KERNELS, optimizer=OPTIMIZERS, sparse=FORMS)
def test_padding_stays_zero(kernels, optimizer, sparse):
    run = Run(kernels, output_major=True, sparse=sparse, max_scores=160)
    padding = run.start == 0
    run.train_some(optimizer)
    params, first, second, _ = run.numbers()
    assert (params != run.start).any()
    assert not params[padding].any() and not first[padding].any() and not second[padding].any()


@layouts
def test_steps_in_parts_are_recorded_and_repeated(device_kernels, output_major):
    device = device_kernels.device
    device.enter()  # a graph cannot be recorded on the default stream
    recorded, plain = (
        Run(device_kernels, output_major=output_major, **limit)
        for limit in ({"max_scores": 160}, {})
    )
    steps = CapturedSteps(device, recorded.network, recorded.kind, SGD, HYPER)
    data = [device_kernels.move(each) for each in (recorded.inputs, recorded.labels)]
    there = device.zeros(13, np.int64)
    random = np.random.default_rng(5)
    for rate in (0.05, 0.04, 0.03, 0.02):
        rows = some_rows(random, 13, of=ROWS)
        device.copy_into(there, rows)
        steps.set_rate(rate)
        steps.train(0, *data, there, there, recorded.totals)
        plain.train(rows, SGD, HYPER._replace(rate=rate))
    assert_same_model(recorded, plain)


def test_the_scratch_contains_the_scores_of_one_part_only():
    def taken(**limit):
        device = HostDevice(memory_bytes=10_000_000)
        run = Run(Backend(device, device.kernels), output_major=True, **limit)
        before = device.free_bytes()
        run.network.reserve(1000, sparse=False)
        reserved = before - device.free_bytes()
        run.train_some(OPTIMIZERS["sgd"], batch=1000)
        run.evaluate(np.zeros(1000, np.int64))
        assert not run.network.reserve(1000, sparse=False)
        assert not run.network.reserve(130, sparse=False)
        return reserved

    floats: Floats = np.array([taken(max_scores=100 * 32), taken()]) / 4
    below = 1000 * 16 + 2 * 1000 * 32  # inputs; 18 hidden units and their gradients
    assert_array_equal(floats, [below + 2 * 100 * 32, below + 2 * 1000 * 32])
