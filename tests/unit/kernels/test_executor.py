from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.data.batch import dense_inputs, multi_labels, single_labels
from hogbatch.kernels import reference
from hogbatch.kernels.contract import (
    ACTIVATIONS,
    ADAM,
    HINGE,
    LINEAR,
    LOGISTIC,
    LOSS,
    LOSSES,
    MOMENTUM,
    SGD,
    SKIPPED,
    SKIPPED_ROW,
    SOFTMAX,
    SQUARED,
    Hyper,
    Slots,
)
from hogbatch.kernels.executor import Executor, corrected
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.kernels.layers import LayerView
from hogbatch.store.layout import stored_width, tensor_offsets
from tests.support.kernel_backends import KERNELS, Backend
from tests.support.kernel_cases import (
    FORMS,
    HYPER,
    csr_set,
    dense_set,
    labels_for,
    overflowing,
    score_width,
    some_rows,
    toarray,
    totals,
)
from tests.support.pairs import pairs

FEATURES, HIDDEN, OUTPUTS, ROWS_OF_SET = 9, 18, 6, 7
PLAIN = Hyper(rate=1e-3, l2=0.0, momentum=0.0, beta2=0.0, epsilon=0.0)  # small: no row is bounded


def make_layers(*widths, activation):
    """Views of layers from widths[0] inputs to widths[-1] outputs, and the length of the params."""
    stored = [stored_width(width) for width in widths]
    shapes = [shape for pair in pairwise(stored) for shape in (pair, pair[1:])]
    offsets, length = tensor_offsets(shapes)
    layers = tuple(
        LayerView(
            weights=offsets[2 * index],
            bias=offsets[2 * index + 1],
            fan_in=stored[index],
            fan_out=stored[index + 1],
            width=width,
            activation=activation if index < len(widths) - 2 else LINEAR,
        )
        for index, width in enumerate(widths[1:])
    )
    return layers, length


def fill(layers, widths, params, random):
    """Fill all cells except the padding with random numbers."""
    for layer, fan_in in zip(layers, widths, strict=False):
        weights = params[layer.weights :][: layer.fan_in * layer.fan_out]
        cells = random.normal(0, 0.5, (fan_in, layer.width))
        weights.reshape(layer.fan_in, layer.fan_out)[:fan_in, : layer.width] = cells
        params[layer.bias :][: layer.width] = random.normal(0, 0.5, layer.width)


class Run:
    """One network with its data, in the precision of `dtype`, on `backend`."""

    densify = False

    def __init__(self, backend, dtype, loss, activation, sparse, slots=0, hidden=(HIDDEN,), seed=3):
        random, outputs = np.random.default_rng(seed), score_width(loss, OUTPUTS)
        widths = (FEATURES, *hidden, outputs)
        self.layers, length = make_layers(*widths, activation=activation)
        self.params = np.zeros(length, dtype)
        fill(self.layers, widths, self.params, random)
        self.inputs = (csr_set if sparse else dense_set)(random, FEATURES, ROWS_OF_SET)
        self.labels = labels_for(random, loss, outputs, ROWS_OF_SET)
        self.loss, self.backend, self.totals = loss, backend, totals()
        self.slots = [np.zeros(length if n < slots else 0, dtype) for n in range(2)]

    def train(self, rows, optimizer, hyper):
        self._batch("train_batch", rows, optimizer, hyper)

    def mean_loss(self, params, rows):
        self.params, self.totals = params, totals()
        self._batch("evaluate_batch", rows)
        return self.totals[LOSS] / len(rows)

    def _batch(self, method, rows, *arguments):
        """Move everything to the device, run one batch, and move everything back."""
        here = (self.params, *self.slots)
        there = tuple(map(self.backend.move, here))
        backend = self.backend
        network = Executor(backend.module, backend.device.xp, self.layers, *there, self.densify)
        data = [self.backend.move(each) for each in (self.inputs, self.labels, rows, self.totals)]
        getattr(network, method)(*data[:3], self.loss, *arguments, data[3])
        self.backend.fetch((*there, data[3]), (*here, self.totals))


@pytest.fixture
def double():
    """The reference, for arrays in double precision."""
    device = HostDevice()
    return Backend(device, device.kernels)


@pairs(sparse=FORMS, activation=ACTIVATIONS, loss=LOSSES)
def test_gradients_are_finite_differences_of_the_loss(double, loss, activation, sparse):
    run = Run(double, np.float64, loss, activation, sparse, hidden=(HIDDEN, 5))
    random, rows, start = np.random.default_rng(1), np.array([6, 1, 3, 3, 0]), run.params.copy()
    run.train(rows, SGD, PLAIN)
    gradient = (start - run.params) / PLAIN.rate
    for _ in range(6):
        direction = random.normal(size=start.size)
        near = [run.mean_loss(start + h * direction, rows) for h in (-1e-6, 1e-6)]
        slope = (near[1] - near[0]) / 2e-6
        assert gradient @ direction == pytest.approx(slope, rel=1e-5, abs=1e-7)


@pairs(kernels=KERNELS, sparse=FORMS, activation=ACTIVATIONS, loss=LOSSES, optimizer=OPTIMIZERS)
def test_every_backend_trains_as_the_reference_in_double(
    kernels, double, sparse, activation, loss, optimizer
):
    rough, exact = (
        Run(backend, dtype, loss, activation, sparse, optimizer.slots)
        for backend, dtype in ((kernels, np.float32), (double, np.float64))
    )
    random = np.random.default_rng(5)
    for t in range(1, 4):
        rows = some_rows(random, 5)
        for run in (rough, exact):
            hyper = corrected(optimizer.kind, HYPER._replace(rate=0.05), t)
            run.train(rows, optimizer.kind, hyper)
    assert_allclose(rough.params, exact.params, rtol=1e-3, atol=1e-3)
    assert_allclose(rough.totals, exact.totals, rtol=1e-3)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_padding_stays_zero(kernels, sparse):
    run = Run(kernels, np.float32, SOFTMAX, ACTIVATIONS["sigmoid"], sparse, slots=2)
    real = run.params != 0
    run.train(some_rows(np.random.default_rng(1), 6), ADAM, HYPER)
    assert not run.params[~real].any() and not run.slots[0][~real].any()


@overflowing
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_row_that_overflows_leaves_no_trace(kernels, sparse):
    run, clean = (Run(kernels, np.float32, SQUARED, ACTIVATIONS["relu"], sparse) for _ in range(2))
    cells = run.inputs.values if sparse else run.inputs.dense[-1]
    cells[-FEATURES:] = np.float32(3e38)  # the last row of the set is full
    run.train(np.array([3, ROWS_OF_SET - 1, 1]), SGD, PLAIN._replace(rate=0.3))
    clean.train(np.array([3, 1]), SGD, PLAIN._replace(rate=0.2))  # means over 3 and over 2
    assert run.totals[SKIPPED] == 1
    assert_allclose(run.params, clean.params, rtol=1e-4, atol=1e-5)


@overflowing
@pytest.mark.parametrize("label", [0, 1])
@pairs(kernels=KERNELS, sparse=FORMS, loss=[LOGISTIC, HINGE, SOFTMAX])
def test_a_row_that_overflows_with_loss_zero_leaves_no_trace(kernels, loss, sparse, label):
    """Its hidden output and its scores are infinite, with the sign of its label."""
    run, clean = (
        Run(kernels, np.float32, loss, ACTIVATIONS["relu"], sparse, hidden=(1,)) for _ in range(2)
    )
    for each in run, clean:
        lower, upper = (
            each.params[one.weights :][: one.fan_in * one.fan_out] for one in run.layers
        )
        np.abs(lower, out=lower)
        upper[: run.layers[1].width] = -1
        upper[label if loss == SOFTMAX else 0] = 1 if loss == SOFTMAX or label else -1
        each.labels.values[-1] = label
    cells = run.inputs.values if sparse else run.inputs.dense[-1]
    cells[-FEATURES:] = np.float32(3e38)
    run.train(np.array([3, ROWS_OF_SET - 1, 1]), SGD, PLAIN._replace(rate=0.3))
    clean.train(np.array([3, 1]), SGD, PLAIN._replace(rate=0.2))
    assert (run.totals[SKIPPED], run.totals[SKIPPED_ROW]) == (1, ROWS_OF_SET)
    assert_allclose(run.params, clean.params, rtol=1e-4, atol=1e-5)


@overflowing
@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_a_nan_in_dense_inputs_skips_one_row(kernels, activation):
    run = Run(kernels, np.float32, SOFTMAX, activation, sparse=False)
    run.inputs.dense[2, 0] = np.nan
    run.train(np.array([0, 2]), SGD, PLAIN)
    assert run.totals[SKIPPED] == 1 and np.isfinite(run.params).all()


def test_weights_decay_and_biases_do_not(double):
    run = Run(double, np.float32, HINGE, LINEAR, sparse=False, hidden=())
    run.inputs, run.labels = dense_inputs(np.zeros((1, FEATURES), np.float32)), one_label(1)
    layer = run.layers[0]
    run.params[layer.bias] = 5  # beyond the margin, where the loss has no gradient
    before = run.params.copy()
    run.train(np.array([0]), SGD, HYPER)
    assert run.params[layer.bias] == 5
    expected = before[: layer.bias] * (1 - HYPER.rate * HYPER.l2)
    assert_allclose(run.params[: layer.bias], expected, rtol=1e-6)


def one_label(value):
    return single_labels(np.array([value], np.float32))


def train_tensor_by_tensor(run, rows, optimizer, hyper):
    """Do as `run.train`, with one step per tensor; needs a run in double precision."""
    start = run.params.copy()
    run.train(rows, SGD, PLAIN)
    gradient = (start - run.params) / PLAIN.rate
    run.params[:] = start
    for layer in run.layers:
        weights = slice(layer.weights, layer.weights + layer.fan_in * layer.fan_out)
        bias = slice(layer.bias, layer.bias + layer.fan_out)
        for part, decay in ((weights, hyper.l2), (bias, 0.0)):
            slots = Slots(*(slot[part] if slot.size else slot for slot in run.slots))
            decayed = hyper._replace(l2=decay)
            reference.step(optimizer, decayed, gradient[part], slots, run.params[part])


@pairs(optimizer=OPTIMIZERS, sparse=FORMS, l2=[0.0, HYPER.l2])
def test_the_step_equals_one_step_per_tensor(double, optimizer, sparse, l2):
    activation, hidden = ACTIVATIONS["tanh"], (HIDDEN, 5)
    run, expected = (
        Run(double, np.float64, SOFTMAX, activation, sparse, optimizer.slots, hidden)
        for _ in range(2)
    )
    hyper = HYPER._replace(rate=0.02, l2=l2)  # small: no row is bounded
    for rows in ([6, 1, 3], [2, 6], [6, 6, 4]):  # row 6 is full: it touches all features
        run.train(np.array(rows), optimizer.kind, hyper)
        train_tensor_by_tensor(expected, np.array(rows), optimizer.kind, hyper)
        assert_allclose(run.params, expected.params, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_sparse_rows_made_dense_train_as_dense_rows(kernels, optimizer):
    activation = ACTIVATIONS["relu"]
    run, expected = (
        Run(kernels, np.float32, SOFTMAX, activation, True, optimizer.slots) for _ in range(2)
    )
    run.densify = True
    expected.inputs = dense_inputs(toarray(run.inputs, FEATURES))
    hyper = HYPER._replace(rate=0.02)
    for rows in ([6, 1], [2], [0, 3]):  # few features are touched, but all weights are updated
        run.train(np.array(rows), optimizer.kind, hyper)
        expected.train(np.array(rows), optimizer.kind, hyper)
    assert_allclose(run.params, expected.params, rtol=1e-6, atol=1e-7)
    assert_allclose(run.totals, expected.totals, rtol=1e-6)
    rows = np.arange(ROWS_OF_SET)
    assert run.mean_loss(run.params, rows) == pytest.approx(
        expected.mean_loss(expected.params, rows), rel=1e-6
    )


class CountingNumpy:
    """NumPy that counts calls of its functions."""

    def __init__(self):
        self.asked = 0

    def __getattr__(self, name):
        self.asked += 1
        return getattr(np, name)


@pytest.mark.parametrize("densify", [False, True])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_nothing_is_allocated_from_the_second_batch_of_a_size_on(double, sparse, densify):
    run, xp = Run(double, np.float32, SOFTMAX, LINEAR, sparse, slots=1), CountingNumpy()
    network = Executor(double.module, xp, run.layers, run.params, *run.slots, densify)

    def asked_by(batch):
        before, rows = xp.asked, np.arange(batch) % ROWS_OF_SET
        network.train_batch(run.inputs, run.labels, rows, SOFTMAX, MOMENTUM, PLAIN, run.totals)
        network.evaluate_batch(run.inputs, run.labels, rows, SOFTMAX, run.totals)
        return xp.asked - before

    assert asked_by(50) > 0
    assert [asked_by(batch) for batch in (50, 3, 50)] == [0, 0, 0]
    assert asked_by(100) > 0
    assert asked_by(100) == 0


def test_scratch_for_a_larger_batch_replaces_the_smaller():
    device = HostDevice(memory_bytes=200_000)
    run = Run(Backend(device, device.kernels), np.float32, SOFTMAX, LINEAR, sparse=False)
    network = Executor(device.kernels, device.xp, run.layers, run.params, *run.slots)
    assert network.reserve(300, sparse=False)
    smaller = 200_000 - device.free_bytes()
    assert not network.reserve(300, sparse=False) and not network.reserve(2, sparse=True)
    assert network.reserve(450, sparse=False)
    larger = 200_000 - device.free_bytes()
    assert smaller < larger < 200_000 < smaller + larger  # both together would not have fitted


def test_scores_are_scratch_of_the_batch(double):
    run = Run(double, np.float32, SOFTMAX, ACTIVATIONS["tanh"], sparse=False)
    network = double.network(run.layers, run.params, *run.slots)
    all_rows = network.scores(run.inputs, np.arange(ROWS_OF_SET)).copy()
    assert all_rows.shape == (ROWS_OF_SET, stored_width(OUTPUTS))
    assert_allclose(network.scores(run.inputs, np.array([5, 2])), all_rows[[5, 2]], rtol=1e-6)


def test_after_running_out_of_memory_a_smaller_batch_works():
    device = HostDevice(memory_bytes=20_000)
    run = Run(Backend(device, device.kernels), np.float32, SOFTMAX, LINEAR, sparse=False)
    network = Executor(device.kernels, device.xp, run.layers, run.params, *run.slots)
    network.scores(run.inputs, np.arange(ROWS_OF_SET))
    with pytest.raises(MemoryError, match=r"gpu:host has .* of 20000 bytes left"):
        network.scores(run.inputs, np.zeros(5000, np.int64))
    assert device.free_bytes() == 20_000  # the old scratch is freed, and half of the new
    assert np.isfinite(network.scores(run.inputs, np.arange(ROWS_OF_SET))).all()


def test_after_a_failed_sparse_step_its_scratch_is_made_anew(double):
    run, other = (Run(double, np.float64, SOFTMAX, LINEAR, sparse=True) for _ in range(2))
    network, expected = (
        double.network(each.layers, each.params, *each.slots) for each in (run, other)
    )
    rows = np.arange(ROWS_OF_SET)
    kernels, made = network._kernels, []

    class Failing:
        """The kernels, whose scratch is unusable after the first sparse step, which fails."""

        def __getattr__(self, name):
            return getattr(kernels, name)

        def csr_scratch(self, *arguments):
            made.append(kernels.csr_scratch(*arguments))
            return made[-1]

        def csr_step(self, *arguments):
            if len(made) == 1:
                raise MemoryError
            kernels.csr_step(*arguments)

    network._kernels = Failing()
    with pytest.raises(MemoryError):
        network.train_batch(run.inputs, run.labels, rows, SOFTMAX, SGD, PLAIN, run.totals)
    for each, model in ((run, network), (other, expected)):
        model.train_batch(each.inputs, each.labels, rows, SOFTMAX, SGD, PLAIN, each.totals)
    assert len(made) == 2
    assert_allclose(run.params, other.params)


def test_an_executor_accepts_dense_and_sparse_batches_in_turn(double):
    run = Run(double, np.float64, SOFTMAX, LINEAR, sparse=True)
    network = double.network(run.layers, run.params, *run.slots)
    csr = run.inputs
    dense = dense_inputs(np.zeros((ROWS_OF_SET, FEATURES), np.float32))
    for row in range(ROWS_OF_SET):
        stored = slice(csr.indptr[row], csr.indptr[row + 1])
        dense.dense[row, csr.indices[stored]] = csr.values[stored]
    rows = np.arange(ROWS_OF_SET)
    assert_allclose(network.scores(csr, rows).copy(), network.scores(dense, rows), rtol=1e-12)


def test_corrected_is_adams_bias_correction():
    hyper = Hyper(rate=0.1, l2=0.0, momentum=0.9, beta2=0.99, epsilon=1e-8)
    for t in (1, 2, 1000):
        rate = 0.1 * np.sqrt(1 - 0.99**t) / (1 - 0.9**t)
        assert corrected(ADAM, hyper, t) == hyper._replace(rate=pytest.approx(rate, rel=1e-12))
    assert corrected(SGD, hyper, 1) == hyper


def test_the_first_corrected_step_of_adam_has_the_length_of_the_rate(kernels):
    run = Run(kernels, np.float32, SQUARED, LINEAR, sparse=False, slots=2, hidden=())
    run.inputs, run.labels = dense_inputs(np.ones((1, FEATURES), np.float32)), one_label(3)
    before = run.params.copy()
    hyper = Hyper(rate=0.1, l2=0.0, momentum=0.9, beta2=0.999, epsilon=1e-12)
    run.train(np.array([0]), ADAM, corrected(ADAM, hyper, 1))
    moved = np.abs(run.params - before)
    assert_allclose(moved[before != 0], 0.1, rtol=1e-3)
    assert_array_equal(moved[before == 0], 0)


def test_multi_label_rows_without_labels_still_train(kernels):
    run = Run(kernels, np.float32, LOSSES["multilabel"], LINEAR, sparse=False, hidden=())
    run.labels = multi_labels(np.zeros(8, np.int64), np.empty(0, np.int32))
    before = run.params.copy()
    run.train(np.array([0, 1]), SGD, PLAIN)
    bias = run.layers[0].bias
    assert (run.params[bias : bias + OUTPUTS] < before[bias : bias + OUTPUTS]).all()
