"""Evaluation in blocks of outputs, compared with the reference on all scores at once."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.kernels.contract import LOSS, METRIC_SUMS, ROWS, SKIPPED, SOFTMAX, TOTALS, smoothed
from hogbatch.kernels.cpu.exact import BLOCK, TOGETHER
from hogbatch.kernels.reference import NUMPY_KERNELS
from tests.support.executor_runs import scores_of
from tests.support.kernel_cases import FORMS
from tests.support.pairs import pairs
from tests.support.stored_scores import assert_stored, both_forms
from tests.support.wide_networks import WIDE_LOSSES, WideCase

losses = pytest.mark.parametrize("loss", WIDE_LOSSES)
poisoned = pairs(
    loss=WIDE_LOSSES, neuron=[0, BLOCK - 1, BLOCK + 4], poison=[np.nan, np.inf, -np.inf]
)
SIZES = {  # classes, rows
    "fewer than a metric looks at": (2, 5),
    "one block without its last output": (BLOCK - 1, 5),
    "one block": (BLOCK, 5),
    "a block and one output": (BLOCK + 1, 5),
    "several blocks": (2 * BLOCK + 7, 5),
    "several blocks of rows": (33, TOGETHER + 3),
}


def expected(case):
    """The totals, by the reference."""
    totals, scores = np.zeros(TOTALS), scores_of(case.executor(), case.inputs, case.order)
    NUMPY_KERNELS.loss_and_metrics(case.loss, case.labels, case.order, case.classes, scores, totals)
    totals[ROWS] = len(case.order)
    return totals


def whole(case):
    """Make all scores whole numbers, and give each output a twin with the same scores."""
    random = np.random.default_rng(2)
    for tensor in case.network.tensors():
        tensor.view(case.params)[...] = random.integers(-1, 2, tensor.shape)
    case.inputs.dense[:] = random.integers(-1, 2, case.inputs.dense.shape)
    twins = random.permutation(case.classes) // 2
    for tensor in case.network.tensors()[-2:]:
        tensor.view(case.params)[...] = tensor.view(case.params)[twins]
    return case


@pairs(loss=WIDE_LOSSES, sparse=FORMS, size=list(SIZES))
def test_losses_and_metrics_are_those_of_all_scores(loss, sparse, size):
    classes, rows = SIZES[size]
    case = WideCase(loss, sparse=sparse, hidden=(20, 33), classes=classes)
    case.order = np.random.default_rng(1).integers(0, 30, rows)
    before, scores = case.params.copy(), scores_of(case.executor(), case.inputs, case.order)
    for stored in both_forms(len(case.inputs.dense) or len(case.inputs.indptr) - 1, classes):
        case.totals[:] = 0
        assert_allclose(case.evaluate(stored), expected(case), rtol=1e-5)
        assert_stored(stored, case.order, scores[:, :classes])
    assert_array_equal(case.params, before)


@pairs(loss=WIDE_LOSSES, classes=[4, 9, BLOCK + 1, 2 * BLOCK + 7], all_equal=[False, True])
def test_of_equal_scores_the_lower_label_counts_as_the_better(loss, classes, all_equal):
    case = whole(WideCase(loss, hidden=(20, 33), classes=classes))
    case.params *= not all_equal
    scores = np.sort(case.scores(), axis=1)
    assert (scores[:, -1] == scores[:, -2]).any()
    totals, theirs = case.evaluate(), expected(case)
    assert_allclose(totals[METRIC_SUMS:], theirs[METRIC_SUMS:], rtol=1e-6)
    assert_allclose(totals[LOSS], theirs[LOSS], rtol=1e-5)


def test_label_smoothing_does_not_change_an_evaluation():
    case = WideCase("softmax", classes=9)
    totals = case.evaluate().copy()
    case.loss, case.totals[:] = smoothed(SOFTMAX, 0.1), 0
    assert_array_equal(case.evaluate(), totals)


@losses
def test_scores_far_apart_neither_overflow_nor_vanish(loss):
    case = WideCase(loss, classes=BLOCK + 9)
    weight, bias = case.network.tensors()[-2:]
    weight.view(case.params)[:] *= 60
    bias.view(case.params)[BLOCK:] += 500  # the highest is in the last block
    totals = case.evaluate()
    assert totals[SKIPPED] == 0
    assert_allclose(totals, expected(case), rtol=1e-5)


@poisoned
def test_a_row_with_a_score_that_is_not_finite_is_counted_and_no_other(loss, neuron, poison):
    """Through a relu unit that is 0 but in one row, and which only this neuron looks at."""
    case = WideCase(loss, classes=BLOCK + 9, hidden=(20, 33))
    bad = case.order[6]
    tensors = [tensor.view(case.params) for tensor in case.network.tensors()]
    lowest, lowest_bias, below, bias, weight, _ = tensors
    for cells in (case.inputs.dense[:, 0], lowest[0], lowest[:, 0], below[:, 0], weight[:, 0]):
        cells[:] = 0
    lowest_bias[0] = bias[0] = 0
    case.inputs.dense[bad, 0] = poison if np.isnan(poison) else 1
    lowest[0, 0], below[0, 0], weight[neuron, 0] = 1, 10, np.copysign(3e38, poison)
    totals = case.evaluate()
    assert totals[SKIPPED] == np.count_nonzero(case.order == bad)
    assert_allclose(totals, expected(case), rtol=1e-5)


def test_a_raised_fence_stops_an_evaluation_before_its_first_row():
    case = WideCase()
    case.fence[0] += 1
    assert not case.evaluate().any()


def test_rows_without_labels_have_loss_0_and_no_hits():
    case = WideCase("multilabel-softmax")
    case.order = np.zeros(3, np.int64)  # row 0 has none
    totals = case.evaluate()
    assert totals[ROWS] == 3 and not np.delete(totals, ROWS).any()
