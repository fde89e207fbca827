"""Each metric against scikit-learn's, or against its definition where scikit-learn has none."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn import metrics as sk

from hogbatch.config.losses import LOSSES
from hogbatch.config.metrics import CUTOFFS, METRICS, TUNED, fitting
from hogbatch.data.batch import multi_labels, single_labels
from hogbatch.data.facts import Frequencies
from hogbatch.model.metrics import (
    FORMULAS,
    Scored,
    best_threshold,
    log_odds,
    measure,
    propensities,
)

ROWS = 300


def lists_of(rows):
    indptr = np.cumsum([0, *map(len, rows)])
    return multi_labels(indptr, np.array([label for row in rows for label in row], np.int32))


def softmax(scores):
    fractions = np.exp(scores.astype(np.float64))
    return fractions / fractions.sum(axis=1, keepdims=True)


def calibration_error(fractions, predicted, true, weights):
    """The expected calibration error, bin by bin."""
    confidence, correct = fractions[np.arange(len(true)), predicted], predicted == true
    total = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence >= low) & ((confidence < low + 1 / 15) | (low == 14 / 15))
        total += abs((weights * (confidence - correct))[inside].sum())
    return total / weights.sum()


def of_classes(true, scores, weights, threshold=0.5):
    """scikit-learn's metrics of classes, from scores [N, C] or [N, 1]."""
    binary, w = scores.shape[1] == 1, {"sample_weight": weights}
    columns = np.hstack([np.zeros_like(scores), scores]) if binary else scores
    predicted, fractions = columns.argmax(axis=1), softmax(columns)
    if threshold != 0.5:
        predicted = (fractions[:, 1] > threshold).astype(int)
    second = {"labels": [1], "average": "macro"} if binary else {}
    found = {
        "log_loss": sk.log_loss(true, fractions, **w),
        "accuracy": sk.accuracy_score(true, predicted, **w),
        "balanced_accuracy": sk.balanced_accuracy_score(true, predicted, **w),
        "f1_macro": sk.f1_score(true, predicted, average="macro", **w),
        "brier": sk.brier_score_loss(true, fractions, **w),
        "calibration_error": calibration_error(fractions, predicted, true, weights),
    }
    if binary:
        found["f1"] = sk.f1_score(true, predicted, **second, **w)
        found["auc"] = sk.roc_auc_score(true, scores[:, 0], **w)
        found["average_precision"] = sk.average_precision_score(true, scores[:, 0], **w)
    else:
        found["auc"] = sk.roc_auc_score(true, fractions, multi_class="ovr", **w)
        found["average_precision"] = sk.average_precision_score(true, fractions, **w)
    return found


def drawn_weights(random, weighted):
    return random.integers(0, 4, ROWS) * 0.7 if weighted else None


def with_weights(labels, weights):
    return labels if weights is None else labels._replace(weights=weights)


@pytest.mark.parametrize(
    ("loss", "width", "weighted"),
    [
        ("logistic", 1, False),
        ("logistic", 1, True),
        ("hinge", 1, True),
        ("softmax", 4, False),
        ("softmax", 3, True),
    ],
)
def test_metrics_of_classes_are_those_of_scikit_learn(loss, width, weighted):
    random = np.random.default_rng(width)
    scores = random.standard_normal((ROWS, width)).round(1).astype(np.float32)  # with equal ones
    true = (random.random(ROWS) * max(2, width) * random.random(ROWS)).astype(np.int64)
    weights = drawn_weights(random, weighted)
    labels = with_weights(single_labels(true.astype(np.float32)), weights)
    rows = Scored(LOSSES[loss], labels, scores)
    found = measure(rows)
    expected = of_classes(true, scores, np.ones(ROWS) if weights is None else weights)
    assert {*found} == {each.name for each in fitting(LOSSES[loss])}
    assert found == pytest.approx({name: expected[name] for name in found}, abs=1e-9)
    if width > 1:
        best = np.argsort(-scores, axis=1, kind="stable")[:, :2]
        few = measure(Scored(rows.loss, labels, None, best))
        assert few == {name: found[name] for name in ("accuracy", "balanced_accuracy", "f1_macro")}


@pytest.mark.parametrize(("metric", "weighted"), [("f1", False), ("balanced_accuracy", True)])
def test_no_threshold_is_better_than_the_best_one(metric, weighted):
    random = np.random.default_rng(6)
    true = (random.random(ROWS) < 0.1).astype(np.int64)
    scores = (random.standard_normal((ROWS, 1)) + 2 * true[:, np.newaxis] - 9).round(1)
    weights = drawn_weights(random, weighted)
    rows = Scored(LOSSES["logistic"], with_weights(single_labels(true), weights), scores)
    rows = replace(rows, threshold=best_threshold(metric, rows))
    given = np.ones(ROWS) if weights is None else weights
    likely = softmax(np.hstack([np.zeros_like(scores), scores]))[:, 1]
    thresholds = [0.0, *np.unique(likely)]
    expected = [of_classes(true, scores, given, each)[metric] for each in thresholds]
    found = measure(rows)
    assert found[metric] == pytest.approx(max(expected))
    assert found[metric] > measure(replace(rows, threshold=0.5))[metric]
    assert found == pytest.approx(of_classes(true, scores, given, rows.threshold), abs=1e-9)


def test_a_threshold_may_be_below_all_scores_and_needs_both_classes():
    scores = np.array([[-40.0], [-3.0], [99.0]])
    rows = Scored(LOSSES["logistic"], single_labels(np.array([1.0, 0.0, 1.0])), scores)
    for metric in TUNED:
        assert 0 < best_threshold(metric, rows) < 1
    assert log_odds(best_threshold("f1", rows)) == pytest.approx(-30.5)
    for label in (0.0, 1.0):
        assert best_threshold("f1", replace(rows, labels=single_labels(np.full(3, label)))) is None


@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_of_numbers_are_those_of_scikit_learn(weighted):
    random = np.random.default_rng(1)
    true = random.standard_normal(ROWS) + 1e6
    predicted = true + random.standard_normal(ROWS)
    w = {"sample_weight": drawn_weights(random, weighted)}
    labels = with_weights(single_labels(true), w["sample_weight"])
    rows = Scored(LOSSES["squared"], labels, predicted[:, None])
    assert measure(rows) == pytest.approx(
        {
            "rmse": sk.root_mean_squared_error(true, predicted, **w),
            "mae": sk.mean_absolute_error(true, predicted, **w),
            "r2": sk.r2_score(true, predicted, **w),
        },
        abs=1e-9,
    )


@pytest.mark.parametrize(
    ("loss", "weighted"), [("multilabel", True), ("multilabel-softmax", False)]
)
def test_metrics_of_label_lists_are_those_of_scikit_learn(loss, weighted):
    random, width = np.random.default_rng(2), 9
    marks = random.random((ROWS, width)) < random.random((1, width)) / 2
    scores = random.standard_normal((ROWS, width)).astype(np.float32) + marks
    marks[:, 4], marks[3] = False, False  # a label that does not occur, a row without labels
    weights = drawn_weights(random, weighted)
    w = {"sample_weight": weights}
    rows = [np.flatnonzero(row).tolist() for row in marks]
    labels = with_weights(lists_of(rows), weights)
    found = measure(Scored(LOSSES[loss], labels, scores))
    ranked = softmax(scores) if loss == "multilabel-softmax" else scores
    occurs = marks.any(axis=0)
    expected = {
        "auc": sk.roc_auc_score(marks[:, occurs], ranked[:, occurs], **w),
        "average_precision": sk.average_precision_score(marks[:, occurs], ranked[:, occurs], **w),
    }
    if loss == "multilabel":
        expected["f1_macro"] = sk.f1_score(marks, scores > 0, average="macro", zero_division=0, **w)
    best = np.argsort(-scores, axis=1)[:, :5]
    for k in CUTOFFS:
        correct = np.take_along_axis(marks, best[:, :k], axis=1).sum(axis=1) / k
        expected[f"P@{k}"] = np.average(correct, weights=weights)
        expected[f"nDCG@{k}"] = sk.ndcg_score(marks, scores, k=k, **w)
    assert found == pytest.approx(expected, abs=1e-9)
    few = measure(Scored(LOSSES[loss], labels, None, best))
    assert few == {name: found[name] for name in found if "@" in name}


def test_a_class_without_rows_counts_as_in_scikit_learn():
    random = np.random.default_rng(4)
    true = random.integers(0, 2, ROWS) * 3  # class 1 is predicted, class 2 is not
    scores = random.standard_normal((ROWS, 4)).astype(np.float32) - [0, 0, 9, 0]
    found = measure(Scored(LOSSES["softmax"], single_labels(true.astype(np.float32)), scores))
    predicted = scores.argmax(axis=1)
    assert found["f1_macro"] == pytest.approx(sk.f1_score(true, predicted, average="macro"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = sk.balanced_accuracy_score(true, predicted)
    assert found["balanced_accuracy"] == pytest.approx(expected)
    one_vs_rest = [sk.roc_auc_score(true == n, softmax(scores)[:, n]) for n in (0, 3)]
    assert found["auc"] == pytest.approx(np.mean(one_vs_rest))


def test_a_metric_that_is_not_defined_is_nan():
    logistic = LOSSES["logistic"]
    ones = measure(Scored(logistic, single_labels(np.ones(2)), np.array([[0.5], [1.0]])))
    assert math.isnan(ones["auc"]) and ones["average_precision"] == ones["accuracy"] == 1
    none = measure(Scored(logistic, single_labels(np.zeros(0)), np.zeros((0, 1))))
    assert none and all(math.isnan(value) for value in none.values())
    constant = np.full(3, 2.0)
    for predicted in (constant, constant + 1):
        rows = Scored(LOSSES["squared"], single_labels(constant), predicted[:, None])
        assert measure(rows)["r2"] == sk.r2_score(constant, predicted)


def test_the_table_lists_the_formulas_and_some_metric_fits_each_loss():
    assert {each.name for each in METRICS} == set(FORMULAS)
    for loss in LOSSES.values():
        names = [each.name for each in fitting(loss)]
        assert len({*names}) == len(names)
        assert {*fitting(loss, scores=False, frequencies=False)} <= {*fitting(loss)}


def by_definition(k, top, rows, propensity, weights):
    """PSP@k, label by label."""
    reached = reachable = 0.0
    for columns, row, weight in zip(top, rows, weights, strict=True):
        reached += weight * sum(1 / propensity[n] for n in columns[:k] if n in row)
        gains = sorted((1 / propensity[label] for label in row), reverse=True)
        reachable += weight * sum(gains[:k])
    return reached / reachable if reachable else math.nan


def test_propensities_follow_the_formula():
    c = (math.log(100) - 1) * 2.5**0.55
    expected = [1 / (1 + c * math.exp(-0.55 * math.log(n + 1.5))) for n in (80, 0, 30)]
    found = propensities(Frequencies(100, np.array([80, 0, 30])))
    assert found == pytest.approx(expected, rel=1e-12)
    for rows in (0, 1, 2):  # too few
        assert propensities(Frequencies(rows, np.array([rows, 0]))).tolist() == [1, 1]


@given(seed=st.integers(0, 2**32 - 1), width=st.sampled_from([5, 6, 40]))
def test_psp_is_its_definition(seed, width):
    random = np.random.default_rng(seed)
    rows = [np.flatnonzero(random.random(width) < random.random()).tolist() for _ in range(9)]
    counts = Frequencies(100, random.integers(0, 100, width))
    for chosen in (rows, [[], []], []):  # without labels there is none
        top = np.array([random.permutation(width)[:5] for _ in chosen], np.int32).reshape(-1, 5)
        weights = random.uniform(0.1, 1, len(chosen))
        labels = with_weights(lists_of(chosen), weights)
        scored = Scored(LOSSES["multilabel"], labels, None, top, counts)
        for k in CUTOFFS:
            expected = by_definition(k, top, chosen, propensities(counts), weights)
            assert measure(scored)[f"PSP@{k}"] == pytest.approx(expected, nan_ok=True)
