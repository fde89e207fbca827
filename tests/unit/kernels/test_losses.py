import math

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.data.batch import multi_labels, single_labels
from hogbatch.kernels import reference_losses
from hogbatch.kernels.contract import (
    ABSOLUTE,
    EXTRA_WEIGHT,
    HINGE,
    HUBER,
    LOGISTIC,
    LOSS,
    LOSSES,
    METRIC_SUMS,
    MULTILABEL,
    POISSON,
    SKIPPED,
    SKIPPED_ROW,
    SOFTMAX,
    SOFTMAX_MANY,
    SQUARED,
    STEEPEST,
    smoothed,
)
from hogbatch.kernels.reference import NUMPY_KERNELS
from tests.support.kernel_backends import KERNELS
from tests.support.kernel_cases import (
    SET,
    examples,
    junk,
    labels_for,
    padded,
    score_width,
    shapes,
    some_rows,
    totals,
)
from tests.support.pairs import pairs

every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
ONE = np.array([0], np.int64)
TWO = single_labels(np.array([1, 3], np.float32))  # targets of one row
NO, YES = single_labels(np.array([0], np.float32)), single_labels(np.array([1], np.float32))
WIDE = 1000  # columns; more than any kernel takes at once


def lists(*labels):
    """One row with these labels."""
    return multi_labels(np.array([0, len(labels)], np.int64), np.array(labels, np.int32))


# One row each: loss, label, scores, and the expected loss and gradient.
BY_HAND = {
    "logistic, right": (LOGISTIC, YES, [2], math.log(1 + math.exp(-2)), [-1 / (1 + math.exp(2))]),
    "logistic, wrong": (LOGISTIC, NO, [2], math.log(1 + math.exp(2)), [1 / (1 + math.exp(-2))]),
    "logistic, far out": (LOGISTIC, YES, [-500], 500, [-1]),
    "logistic, smoothed": (
        *(smoothed(LOGISTIC, 0.2), YES, [2]),
        *(math.log(1 + math.exp(-2)), [1 / (1 + math.exp(-2)) - 0.9]),
    ),
    "hinge, inside": (HINGE, YES, [0.25], 0.75, [-1]),
    "hinge, inside, negative": (HINGE, NO, [0.25], 1.25, [1]),
    "hinge, outside": (HINGE, NO, [-1.5], 0, [0]),
    "softmax, even": (SOFTMAX, YES, [3, 3, 3, 3], math.log(4), [0.25, -0.75, 0.25, 0.25]),
    "softmax, smoothed": (
        smoothed(SOFTMAX, 0.2),
        YES,
        [3, 3, 3, 3],
        math.log(4),
        [0.2, -0.6, 0.2, 0.2],
    ),
    "softmax, far out": (SOFTMAX, YES, [900, 0], 900, [1, -1]),
    "multilabel": (MULTILABEL, lists(1), [0, 0, -200, 80], 2 * math.log(2) + 80, [0.5, -0.5, 0, 1]),
    "multilabel-softmax, even": (
        *(SOFTMAX_MANY, lists(1, 3), [2, 2, 2, 2]),
        *(math.log(4), [0.25, -0.25, 0.25, -0.25]),
    ),
    "multilabel-softmax, far out": (
        SOFTMAX_MANY,
        lists(0, 1),
        [900, 0, -3e38],
        450,
        [0.5, -0.5, 0],
    ),
    "multilabel-softmax, no label": (SOFTMAX_MANY, lists(), [3, -1, 2], 0, [0, 0, 0]),
    "squared": (SQUARED, YES, [4], 4.5, [3]),
    "squared, of two targets": (SQUARED, TWO, [4, 2], 4.5 + 0.5, [3, -1]),
    "quantile, of two targets": (-900_000, TWO, [0, 4], 0.9 + 0.1, [-0.9, 0.1]),
    "huber, near": (HUBER, YES, [1.5], 0.125, [0.5]),
    "huber, far": (HUBER, YES, [-2], 2.5, [-1]),
    "absolute": (ABSOLUTE, YES, [-2], 3, [-1]),
    "absolute, at the kink": (ABSOLUTE, YES, [1], 0, [0]),
    "quantile, median": (LOSSES["quantile:0.5"], YES, [4], 1.5, [0.5]),
    "quantile, too high": (-900_000, YES, [4], 0.3, [0.1]),
    "quantile, too low": (-900_000, YES, [0], 0.9, [-0.9]),
    "poisson": (POISSON, YES, [1], math.e - 2, [math.e - 1]),
    "poisson, none": (POISSON, NO, [-2], math.exp(-2), [math.exp(-2)]),
    "poisson, far out": (
        *(POISSON, NO, [200]),
        *(STEEPEST * (1 + 200 - math.log(STEEPEST)), [STEEPEST]),
    ),
}


def test_every_loss_of_the_table_is_worked_out_by_hand_for_each_backend():
    assert {case[0] for case in BY_HAND.values()} >= set(LOSSES.values())
    assert set(reference_losses._LOSSES) == {kind for kind in LOSSES.values() if kind >= 0}


@pytest.mark.parametrize("case", BY_HAND.values(), ids=BY_HAND)
def test_losses_and_gradients_worked_out_by_hand(kernels, case):
    kind, labels, scores, loss, gradient = case
    z = np.array([scores], np.float32)
    grad, sums = junk(*z.shape), totals()
    kernels.loss_gradient(kind, labels, ONE, ONE, len(scores), z, grad, sums)
    assert sums[LOSS] == pytest.approx(loss, rel=1e-5, abs=1e-6)
    assert grad[0] == pytest.approx(gradient, rel=1e-5, abs=1e-6)
    assert not sums[SKIPPED]


def draw_scores(shape, loss):
    """Labels of the set, rows of a batch, real width, and scores with padding."""
    random, width = shape.random, score_width(loss, shape.width)
    labels = labels_for(random, loss, width, weighted=shape.seed % 2 == 1)
    return labels, some_rows(random, shape.batch), width, padded(random, shape.batch, width)


@every_loss
@examples
@given(shape=shapes)
def test_losses_and_metrics_are_the_reference_in_double_precision(kernels, loss, shape):
    labels, rows, width, scores = draw_scores(shape, loss)
    grad, sums = junk(*scores.shape), totals()
    kernels.loss_gradient(loss, labels, rows, rows, width, scores, grad, sums)
    exact, exact_sums = np.empty(scores.shape), totals()
    precise = scores.astype(float)
    NUMPY_KERNELS.loss_gradient(loss, labels, rows, rows, width, precise, exact, exact_sums)
    assert_allclose(grad, exact, rtol=1e-4, atol=1e-6)
    # atol: a small loss may be the difference of two large numbers
    assert_allclose(sums, exact_sums, rtol=1e-5, atol=1e-6)
    assert not grad[:, width:].any()
    sums, exact_sums = totals(), totals()
    kernels.loss_and_metrics(loss, labels, rows, width, scores, sums)
    NUMPY_KERNELS.loss_and_metrics(loss, labels, rows, width, precise, exact_sums)
    assert_allclose(sums, exact_sums, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", [LOGISTIC, SOFTMAX])
@examples
@given(shape=shapes)
def test_label_smoothing_changes_nothing_but_the_gradient(kernels, loss, shape):
    labels, rows, width, scores = draw_scores(shape, loss)
    kinds, found = (loss, smoothed(loss, 0.1)), []
    for kind in kinds:
        grad, sums = junk(*scores.shape), totals()
        kernels.loss_gradient(kind, labels, rows, rows, width, scores, grad, sums)
        kernels.loss_and_metrics(kind, labels, rows, width, scores, sums)
        found.append((sums, grad))
    assert_array_equal(found[0][0], found[1][0])
    true, classes = labels.values[rows, None], width if loss == SOFTMAX else 2
    target = true == np.arange(classes) if loss == SOFTMAX else true
    weights = labels.weights[rows, None] if len(labels.weights) else 1
    expected = 0.1 * (target - 1 / classes) * weights / len(rows)
    assert_allclose((found[1][1] - found[0][1])[:, :width], expected, atol=1e-6)


@every_loss
def test_a_weight_multiplies_loss_gradient_and_metrics_of_its_row(kernels, loss):
    """In a batch of two rows of which one is skipped, and whose weight therefore does not count."""
    random, width, rows = np.random.default_rng(7), score_width(loss, 6), np.array([2, 1])
    labels = labels_for(random, loss, width)
    weighted = labels._replace(weights=np.array([9, 9, 2.5] + [9] * (SET - 3), np.float32))
    scores, found = padded(random, 2, width), []
    scores[1, 0] = np.nan
    for each in (labels, weighted):
        grad, sums, metric_sums = junk(*scores.shape), totals(), totals()
        kernels.loss_gradient(loss, each, rows, rows, width, scores, grad, sums)
        kernels.loss_and_metrics(loss, each, rows, width, scores, metric_sums)
        assert sums[EXTRA_WEIGHT] == metric_sums[EXTRA_WEIGHT] == (1.5 if each is weighted else 0)
        found.append([grad[0], sums[[LOSS]], metric_sums[[LOSS]], metric_sums[METRIC_SUMS:]])
    for plain, multiplied in zip(*found, strict=True):
        assert_allclose(multiplied, 2.5 * plain, rtol=1e-5)


@every_loss
def test_a_row_that_is_not_finite_is_skipped_and_counted(kernels, loss):
    random, width = np.random.default_rng(7), score_width(loss, 6)
    labels, rows = labels_for(random, loss, width), np.array([2, 1, 4], np.int64)
    scores = padded(random, 3, width)
    clean, clean_sums = junk(*scores.shape), totals()
    kernels.loss_gradient(
        *(loss, labels, rows[[0, 2]], rows[[0, 2]], width), *(scores[[0, 2]], clean[:2], clean_sums)
    )
    for bad in (np.nan, -np.nan, np.inf, -np.inf):  # some give a finite loss
        scores[1, 0] = bad
        grad, sums, metric_sums = junk(*scores.shape), totals(), totals()
        kernels.loss_gradient(loss, labels, rows, rows, width, scores, grad, sums)
        kernels.loss_and_metrics(loss, labels, rows, width, scores, metric_sums)
        assert sums[SKIPPED] == metric_sums[SKIPPED] == 1
        assert sums[SKIPPED_ROW] == 1 + 1
        assert_allclose([sums[LOSS], metric_sums[LOSS]], clean_sums[LOSS], rtol=1e-5)
        assert not grad[1].any()
        assert_allclose(grad[[0, 2]], clean[:2] * 2 / 3, rtol=1e-5)  # the mean is over B = 3


@pairs(
    kernels=KERNELS,
    loss=[SOFTMAX, MULTILABEL, SOFTMAX_MANY],
    bad=[np.nan, -np.nan, np.inf],
    place=[0, 7, 100, WIDE - 1],
)
def test_a_wide_row_is_searched_from_end_to_end(kernels, loss, bad, place):
    random, rows, sums, metric_sums = np.random.default_rng(7), np.array([0, 6]), totals(), totals()
    labels, scores = labels_for(random, loss, WIDE), padded(random, 2, WIDE)
    scores[0, place] = bad  # row 0 of label lists has no label
    grad = junk(*scores.shape)
    kernels.loss_gradient(loss, labels, rows, rows, WIDE, scores, grad, sums)
    kernels.loss_and_metrics(loss, labels, rows, WIDE, scores, metric_sums)
    assert sums[SKIPPED] == metric_sums[SKIPPED] == 1 and sums[LOSS] > 0
    assert not grad[0].any() and grad[1].any()


@pairs(
    kernels=KERNELS,
    loss=[SOFTMAX, MULTILABEL, SOFTMAX_MANY],
    order={"any": None, "ascending": 1, "descending": -1},
)
def test_metrics_of_wide_rows_are_the_reference(kernels, loss, order):
    random, rows = np.random.default_rng(8), np.arange(7)
    labels, scores = labels_for(random, loss, WIDE), padded(random, 7, WIDE)  # many are equal
    if order:
        scores[:, :WIDE] = np.sort(scores[:, :WIDE])[:, ::order]
    sums, exact_sums = totals(), totals()
    for row in (rows[:1], rows[1:]):
        kernels.loss_and_metrics(loss, labels, row, WIDE, scores[row], sums)
        NUMPY_KERNELS.loss_and_metrics(
            loss, labels, row, WIDE, scores[row].astype(float), exact_sums
        )
        assert_allclose(sums, exact_sums, rtol=1e-5)


@every_loss
def test_the_highest_number_of_a_skipped_row_is_kept(kernels, loss):
    random, width, sums = np.random.default_rng(7), score_width(loss, 6), totals()
    labels, rows = labels_for(random, loss, width), np.arange(5)
    scores = padded(random, 5, width)

    def skipped_row(bad, first):
        kept = scores[bad, 0].copy()
        scores[bad, 0] = np.nan
        numbers = np.array([0, 3, 2, 1, 4]) + first
        kernels.loss_gradient(loss, labels, rows, numbers, width, scores, junk(*scores.shape), sums)
        scores[bad, 0] = kept
        return sums[SKIPPED_ROW]

    assert skipped_row([], 0) == 0
    assert skipped_row([0], 0) == 1  # so that no row is 0
    assert skipped_row([3, 1, 2], 70) == 74
    assert skipped_row([0, 2], 20) == 74
    assert skipped_row([0], 1 << 40) == (1 << 40) + 1
    assert sums[SKIPPED] == 7


@pytest.mark.parametrize(
    ("loss", "label", "scores", "metric"),
    [
        (LOGISTIC, YES, [0.5], 1),
        (LOGISTIC, YES, [-0.5], 0),
        (LOGISTIC, NO, [0.0], 1),  # a score of zero says no
        (HINGE, NO, [-0.5], 1),
        (SOFTMAX, YES, [1, 2, 0], 1),
        (SOFTMAX, YES, [2, 2, 0], 0),  # of equal scores the lower class wins
        (SOFTMAX, YES, [1, 2, 2], 1),
        (SOFTMAX, YES, [1, 2, 3], 0),
        (SQUARED, YES, [4], 9),
        (HUBER, YES, [4], 9),
        (SQUARED, TWO, [4, 2], 9 + 1),
        (-900_000, YES, [4], 9),
        (POISSON, YES, [math.log(4)], pytest.approx(9)),
        (POISSON, NO, [200], pytest.approx(math.exp(160), rel=1e-4)),  # of the largest mean
    ],
)
def test_the_metric_of_a_row(kernels, loss, label, scores, metric):
    sums = totals()
    kernels.loss_and_metrics(loss, label, ONE, len(scores), np.array([scores], np.float32), sums)
    assert_array_equal(sums[METRIC_SUMS:], [metric, 0, 0])


@pytest.mark.parametrize(
    ("present", "scores", "precisions"),
    [
        ([1, 3], [0, 9, 8, 7, 6, 5, 4], [1, 2 / 3, 2 / 5]),
        ([0, 1], [5, 5, 5, 5, 5, 5], [1, 2 / 3, 2 / 5]),  # of equal scores the lower label leads
        ([3, 4], [5, 5, 5, 5, 5, 5], [0, 0, 2 / 5]),
        ([0, 1], [-3, -2], [1, 2 / 3, 2 / 5]),  # fewer labels than ranks
        ([], [1, 2, 3], [0, 0, 0]),
        ([2], [2, -1, 3, 1, 0], [1, 1 / 3, 1 / 5]),
    ],
)
def test_precision_at_1_3_and_5(kernels, present, scores, precisions):
    labels, z = lists(*present), np.array([scores], np.float32)
    for loss in (MULTILABEL, SOFTMAX_MANY):
        sums = totals()
        kernels.loss_and_metrics(loss, labels, ONE, len(scores), z, sums)
        assert_allclose(sums[METRIC_SUMS:], precisions, rtol=1e-6)
