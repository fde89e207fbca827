"""Output-major layers, and batches scored in parts, give the same results as other layers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.kernels.contract import LOSS, LOSSES, SGD, SKIPPED, SKIPPED_ROW, TOTALS
from hogbatch.kernels.gpu.graph import CapturedSteps
from tests.support.executor_runs import CLASSES, HYPER, ROWS, Run, assert_same_model
from tests.support.kernel_backends import DEVICES, Backend
from tests.support.kernel_cases import FORMS, some_rows
from tests.support.limited_devices import Limited
from tests.support.pairs import pairs

WIDE_LOSSES = [name for name in LOSSES if name.startswith(("softmax", "multilabel"))]
LAYOUTS = {"by input": False, "by neuron": True}
layouts = pytest.mark.parametrize("output_major", LAYOUTS.values(), ids=LAYOUTS)


@pairs(
    device_kernels=DEVICES,
    loss=WIDE_LOSSES,
    optimizer=OPTIMIZERS,
    hidden=[(18,), (18, 5)],
    sparse=FORMS,
)
def test_the_layout_does_not_change_training(device_kernels, loss, optimizer, hidden, sparse):
    twin, plain = (
        Run(device_kernels, loss, output_major=each, hidden=hidden, sparse=sparse)
        for each in (True, False)
    )
    scores = twin.scores(np.array([6, 1, 39, 1]))
    assert_allclose(scores, plain.scores(np.array([6, 1, 39, 1])), rtol=1e-4, atol=1e-5)
    assert scores[:, :CLASSES].all() and not scores[:, CLASSES:].any()
    assert_same_model(twin.train_some(optimizer), plain.train_some(optimizer))


@pairs(
    device_kernels=DEVICES,
    output_major=LAYOUTS,
    loss=WIDE_LOSSES,
    optimizer=OPTIMIZERS,
    sparse=FORMS,
    max_scores=[1, 160, 416, 417],  # 160: 13 rows are 5 and 5 and 3
)
def test_batches_in_parts_train_the_same(
    device_kernels, output_major, loss, optimizer, sparse, max_scores
):
    case = {"output_major": output_major, "sparse": sparse, "hidden": (18, 5)}
    parts = Run(device_kernels, loss, **case, max_scores=max_scores).train_some(optimizer)
    whole = Run(device_kernels, loss, **case).train_some(optimizer)
    assert_same_model(parts, whole)
    assert not any(parts.padding(flat).any() for flat in (parts.params, *parts.slots))
    rows = np.arange(ROWS)
    assert_allclose(parts.evaluate(rows), whole.evaluate(rows), rtol=1e-4)
    assert_allclose(parts.scores(rows), whole.scores(rows), rtol=1e-3, atol=1e-4)


def test_rows_of_a_part_are_bounded_as_in_the_whole_batch(device_kernels):
    parts, whole = (
        Run(device_kernels, output_major=True, **limit) for limit in ({"max_scores": 160}, {})
    )
    for run in (parts, whole):
        run.train_some(OPTIMIZERS["sgd"], rate=20.0, l2=0.0)  # 20 |x|² / 13 is more than 10
    assert_same_model(parts, whole)


def test_a_linear_model_is_scored_in_one_part(device_kernels):
    parts, whole = (
        Run(device_kernels, hidden=(), sparse=True, **limit).train_some(OPTIMIZERS["sgd"])
        for limit in ({"max_scores": 1}, {})
    )
    assert_same_model(parts, whole, rtol=1e-5)


@layouts
def test_rows_that_are_not_finite_are_skipped_in_each_part(device_kernels, output_major):
    parts, clean = (
        Run(device_kernels, output_major=output_major, **limit)
        for limit in ({"max_scores": 2 * 32}, {})
    )
    parts.inputs.dense[[7, 9, 12]] = np.nan
    parts.train(np.array([3, 7, 9, 1, 12]), SGD, HYPER._replace(rate=0.05, l2=0.0))
    clean.train(np.array([3, 1]), SGD, HYPER._replace(rate=0.02, l2=0.0))  # means over 5 and 2
    assert (parts.totals[SKIPPED], parts.totals[SKIPPED_ROW]) == (3, 12 + 1)
    assert_allclose(parts.params, clean.params, rtol=1e-4, atol=1e-6)
    assert parts.totals[LOSS] == pytest.approx(clean.totals[LOSS], rel=1e-5)


@layouts
def test_steps_in_parts_are_recorded_and_repeated(device_kernels, output_major):
    device, move = device_kernels.device, device_kernels.move
    recorded = Run(device_kernels, output_major=output_major, max_scores=160)
    plain = Run(device_kernels, output_major=output_major)
    flat = tuple(map(move, (recorded.params, *recorded.slots)))
    steps = CapturedSteps(device, recorded.executor(*flat), recorded.loss, SGD, HYPER)
    data, totals = [move(recorded.inputs), move(recorded.labels)], move(recorded.totals)
    there, random = device.zeros(13, np.int64), np.random.default_rng(5)
    for rate in (0.05, 0.04, 0.03, 0.02):
        rows = some_rows(random, 13, of=ROWS)
        device.copy_into(there, rows)
        steps.set_rate(rate)
        steps.train(0, *data, there, there, totals)
        plain.train(rows, SGD, HYPER._replace(rate=rate))
    device_kernels.fetch((*flat, totals), (recorded.params, *recorded.slots, recorded.totals))
    assert_same_model(recorded, plain)


def test_the_scratch_contains_the_scores_of_one_part_only():
    def taken(**limit):
        device, rows = Limited(10_000_000), np.zeros(1000, np.int64)
        run = Run(Backend(device, device.kernels), output_major=True, **limit)
        executor, before = run.executor(), device.free_bytes()
        executor.reserve(1000, sparse=False)
        reserved = before - device.free_bytes()
        batch = run.inputs, run.labels, rows, run.loss
        executor.train_batch(*batch, SGD, HYPER, np.zeros(TOTALS))
        executor.evaluate_batch(*batch, np.zeros(TOTALS))
        assert not executor.reserve(1000, sparse=False)
        assert not executor.reserve(130, sparse=False)
        return reserved // 4

    below = 1000 * 16 + 2 * 1000 * 32  # inputs; 18 hidden units and their gradients
    found = [taken(max_scores=100 * 32), taken()]
    assert_array_equal(found, [below + 2 * 100 * 32, below + 2 * 1000 * 32])
