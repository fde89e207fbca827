import numpy as np
import pytest
from numpy.testing import assert_allclose

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.data.batch import dense_inputs
from hogbatch.kernels.contract import (
    ACTIVATIONS,
    ADAGRAD,
    ADAM,
    LOSSES,
    MOMENTUM,
    SGD,
    SKIPPED,
    SKIPPED_ROW,
    Hyper,
    Slots,
)
from hogbatch.kernels.cpu import model
from hogbatch.kernels.executor import Executor, corrected
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.kernels.reference import NUMPY_KERNELS
from tests.support.executor_runs import (
    CLASSES,
    FEATURES,
    PLAIN,
    ROWS,
    Run,
    assert_gradient_of_the_loss,
    assert_same_model,
    scores_of,
)
from tests.support.kernel_backends import DEVICES, Backend
from tests.support.kernel_cases import FORMS, HYPER, toarray
from tests.support.limited_devices import Kernels, Limited
from tests.support.pairs import pairs
from tests.support.stored_scores import assert_stored, both_forms

HIDDEN = [name for name in ACTIVATIONS if name != "linear"]
FULL = ROWS - 1  # the last row of a sparse set stores all features
SOFTMAX = LOSSES["softmax"]
HOST = Backend(HostDevice(), NUMPY_KERNELS)  # its arrays may be in double precision
forms = pytest.mark.parametrize("sparse", FORMS.values(), ids=FORMS)


def double(*arguments, **keywords):
    return Run(HOST, *arguments, dtype=np.float64, **keywords)


@pairs(sparse=FORMS, activation=HIDDEN, loss=list(LOSSES))
def test_gradients_are_finite_differences_of_the_loss(loss, activation, sparse):
    assert_gradient_of_the_loss(double(loss, activation, sparse=sparse, hidden=(18, 5)))


@pairs(
    device_kernels=DEVICES,
    sparse=FORMS,
    activation=HIDDEN,
    loss=list(LOSSES),
    optimizer=OPTIMIZERS,
)
def test_every_device_trains_as_the_reference_in_double(
    device_kernels, sparse, activation, loss, optimizer
):
    kinds = {"sparse": sparse, "slots": optimizer.slots}
    rough, exact = Run(device_kernels, loss, activation, **kinds), double(loss, activation, **kinds)
    for run in (rough, exact):
        run.train_some(optimizer)
        assert not run.padding(run.params).any()
        assert not any(run.padding(slot).any() for slot in run.slots if slot.size)
    assert_same_model(rough, exact, atol=1e-3)


@pairs(
    device_kernels=DEVICES,
    sparse=FORMS,
    loss=["logistic", "hinge", "softmax", "squared"],
    label=[0, 1],
)
def test_a_row_that_overflows_leaves_no_trace(device_kernels, loss, sparse, label):
    """Its hidden output and its scores are infinite; its loss may be 0."""
    run, clean = (Run(device_kernels, loss, "relu", sparse=sparse, hidden=(1,)) for _ in "ab")
    for each in run, clean:
        lower, _, upper, _ = (tensor.view(each.params) for tensor in each.network.tensors())
        np.abs(lower, out=lower)
        upper[:] = -1
        upper[0, label if loss == "softmax" else 0] = 1 if loss == "softmax" or label else -1
        each.labels.values[FULL] = label
    cells = run.inputs.values if sparse else run.inputs.dense[FULL]
    cells[-FEATURES:] = np.float32(3e38)
    run.train(np.array([3, FULL, 1]), SGD, PLAIN._replace(rate=0.3))
    clean.train(np.array([3, 1]), SGD, PLAIN._replace(rate=0.2))  # means over 3 and over 2
    assert (run.totals[SKIPPED], run.totals[SKIPPED_ROW]) == (1, FULL + 1)
    assert_allclose(run.params, clean.params, rtol=1e-4, atol=1e-5)


@pairs(optimizer=OPTIMIZERS, sparse=FORMS, l2=[0.0, HYPER.l2])
def test_a_batch_is_one_step_per_tensor_and_biases_do_not_decay(optimizer, sparse, l2):
    hyper = HYPER._replace(rate=0.02, l2=l2)  # small: no row is bounded
    run, plain = (double(sparse=sparse, slots=optimizer.slots, hidden=(18, 5)) for _ in "ab")
    for rows in ([FULL, 1, 3], [2, FULL], [FULL, FULL, 4]):  # that touch all features
        plain.params[:], start = run.params, run.params.copy()
        plain.train(np.array(rows), SGD, PLAIN)
        gradient, expected = (start - plain.params) / PLAIN.rate, start
        for tensor in run.network.tensors():
            cells, decay = tensor.view(expected), l2 if tensor.name.endswith("weight") else 0.0
            slots = Slots(*(tensor.view(each) if each.size else each for each in plain.slots))
            step = hyper._replace(l2=decay), tensor.view(gradient), slots, cells
            NUMPY_KERNELS.step(optimizer.kind, *step)
        run.train(np.array(rows), optimizer.kind, hyper)
        assert_allclose(run.params, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_sparse_rows_made_dense_train_as_dense_rows(device_kernels, optimizer):
    run, expected = (Run(device_kernels, sparse=True, densify=dense) for dense in (True, False))
    expected.inputs = dense_inputs(toarray(run.inputs, FEATURES))
    hyper = HYPER._replace(rate=0.02)
    for rows in ([6, 1], [2], [0, 3]):  # few features are touched, but all weights are updated
        run.train(np.array(rows), optimizer.kind, hyper)
        expected.train(np.array(rows), optimizer.kind, hyper)
    assert_same_model(run, expected, rtol=1e-6, atol=1e-7)
    rows = np.arange(ROWS)
    assert_allclose(run.evaluate(rows), expected.evaluate(rows), rtol=1e-6)


@pytest.mark.parametrize("max_scores", [3 * 32, 1 << 20], ids=["in parts", "together"])
def test_an_evaluation_stores_the_scores_of_its_rows(device_kernels, max_scores):
    run, rows = Run(device_kernels, max_scores=max_scores), np.array([7, 0, 3, 9])
    for stored in both_forms(len(rows), CLASSES):
        run.store(rows, stored)
        assert_stored(stored, np.arange(len(rows)), run.scores(rows)[:, :CLASSES])


@pytest.mark.parametrize("densify", [False, True])
@forms
def test_nothing_is_allocated_from_the_second_batch_of_a_size_on(sparse, densify):
    run, asked = Run(HOST, sparse=sparse, slots=1), []

    class CountingNumpy:
        def __getattr__(self, name):
            asked.append(name)
            return getattr(np, name)

    layers, flat = run.network.layer_views(), (run.params, *run.slots)
    executor = Executor(NUMPY_KERNELS, CountingNumpy(), layers, *flat, densify)

    def asked_by(batch):
        asked.clear()
        data = run.inputs, run.labels, np.arange(batch) % ROWS, SOFTMAX
        executor.train_batch(*data, MOMENTUM, PLAIN, run.totals)
        executor.evaluate_batch(*data, run.totals)
        return len(asked)

    assert asked_by(50) > 0
    assert [asked_by(batch) for batch in (50, 3, 50)] == [0, 0, 0]
    assert asked_by(100) > 0
    assert asked_by(100) == 0


def test_scratch_for_a_larger_batch_replaces_the_smaller():
    device = Limited(200_000)
    executor = Run(Backend(device, device.kernels)).executor()
    assert executor.reserve(300, sparse=False)
    smaller = 200_000 - device.free_bytes()
    assert not executor.reserve(300, sparse=False) and not executor.reserve(2, sparse=True)
    assert executor.reserve(320, sparse=False)
    larger = 200_000 - device.free_bytes()
    assert smaller < larger < 200_000 < smaller + larger  # both together would not have fitted


def test_after_running_out_of_memory_a_smaller_batch_works():
    device = Limited(20_000)
    run = Run(Backend(device, device.kernels))
    executor, few = run.executor(), np.arange(7)
    scores_of(executor, run.inputs, few)
    with pytest.raises(MemoryError, match=r"gpu:host has .* of 20000 bytes left"):
        scores_of(executor, run.inputs, np.zeros(5000, np.int64))
    assert device.free_bytes() == 20_000  # the old scratch is freed, and half of the new
    assert np.isfinite(scores_of(executor, run.inputs, few)).all()


def test_after_a_failed_sparse_step_its_scratch_is_made_anew():
    run, other, made = double(sparse=True), double(sparse=True), []

    def csr_scratch(*arguments):
        made.append(NUMPY_KERNELS.csr_scratch(*arguments))
        return made[-1]

    def csr_step(*arguments):
        """Fail the first time, which leaves the scratch unusable."""
        if len(made) == 1:
            raise MemoryError
        NUMPY_KERNELS.csr_step(*arguments)

    failing = Kernels(csr_scratch=csr_scratch, csr_step=csr_step)
    executor = Executor(failing, np, run.network.layer_views(), run.params, *run.slots)
    batch = run.inputs, run.labels, np.arange(ROWS), SOFTMAX, SGD, PLAIN
    with pytest.raises(MemoryError):
        executor.train_batch(*batch, run.totals)
    executor.train_batch(*batch, run.totals)
    other.train(np.arange(ROWS), SGD, PLAIN)
    assert len(made) == 2
    assert_allclose(run.params, other.params)


def test_an_executor_accepts_dense_and_sparse_batches_in_turn():
    run, rows = double(sparse=True), np.arange(ROWS)
    executor, dense = run.executor(), dense_inputs(toarray(run.inputs, FEATURES))
    scores = scores_of(executor, run.inputs, rows).copy()  # scratch, overwritten by the next batch
    assert_allclose(scores, scores_of(executor, dense, rows), rtol=1e-12)
    assert_allclose(scores_of(executor, run.inputs, rows[[5, 2]]), scores[[5, 2]], rtol=1e-12)


def test_corrected_is_adams_bias_correction():
    hyper = Hyper(rate=0.1, l2=0.0, momentum=0.9, beta2=0.99, epsilon=1e-8)
    for t in (1, 2, 1000):
        rate = 0.1 * np.sqrt(1 - 0.99**t) / (1 - 0.9**t)
        assert corrected(ADAM, hyper, t) == hyper._replace(rate=pytest.approx(rate, rel=1e-12))
    assert corrected(SGD, hyper, 1) == hyper


@pytest.mark.parametrize("correct", [corrected, model.corrected], ids=["executor", "compiled"])
def test_the_rate_rises_in_the_updates_of_a_warm_up(correct):
    hyper = HYPER._replace(warm_up=8.0)
    for t, factor in ((1, 1 / 8), (4, 1 / 2), (8, 1), (10**6, 1)):
        assert correct(ADAGRAD, hyper, t).rate == pytest.approx(factor * hyper.rate, rel=1e-12)
