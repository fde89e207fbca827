"""The best model without features."""

import numpy as np
import pytest

from hogbatch.config.losses import LOSSES
from hogbatch.data.batch import single_labels
from hogbatch.data.encode import Encoding
from hogbatch.kernels.contract import LOSS, TOTALS
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.model import baseline as module
from hogbatch.model.baseline import baseline_of, evaluate_baseline
from tests.unit.model.test_metrics import lists_of

ROWS, LABELS = 60, 7


def labels_for(loss):
    random = np.random.default_rng(3)
    match LOSSES[loss].encoding:
        case "binary":
            labels = random.random(ROWS) < 0.3
            return single_labels(labels.astype(np.float32)), Encoding("binary", ("no", "yes"), 1)
        case "classes":
            labels = random.geometric(0.5, ROWS).clip(max=4) - 1
            return single_labels(labels.astype(np.float32)), Encoding("classes", (5, 6, 7, 8), 4)
        case "real":
            labels = random.standard_normal(ROWS).astype(np.float32)
            return single_labels(labels), Encoding("real", (), 1, offset=10.0, scale=4.0)
    rows = [np.flatnonzero(random.random(LABELS) < 0.3).tolist() for _ in range(ROWS)]
    return lists_of(rows), Encoding("multilabel", (), LABELS)


def mean_loss(loss, labels, scores):
    """The loss of equal scores [C] of all rows, by the reference."""
    totals, all_rows = np.zeros(TOTALS), np.tile(scores.astype(np.float64), (ROWS, 1))
    arguments = LOSSES[loss].kind, labels, np.arange(ROWS), len(scores), all_rows, totals
    NUMPY_KERNELS.loss_and_metrics(*arguments)
    return totals[LOSS] / ROWS


@pytest.mark.parametrize(
    "loss",
    ["logistic", "softmax", "squared", "quantile:0.8", "multilabel-softmax", "multilabel"],
)
def test_no_other_scores_have_a_lower_loss_on_the_training_rows(loss):
    labels, encoding = labels_for(loss)
    found = baseline_of(LOSSES[loss], encoding, labels)
    result = evaluate_baseline(found, LOSSES[loss], encoding, labels)
    least = mean_loss(loss, labels, found.scores)
    unit = encoding.scale ** getattr(LOSSES[loss], "unit_power", 1)
    assert result.loss == pytest.approx(least * unit, rel=1e-5)
    for column in range(len(found.scores)):
        for change in (-0.1, 0.1):
            other = found.scores.copy()
            other[column] += change
            assert mean_loss(loss, labels, other) > least


def test_a_class_without_training_rows_has_a_finite_loss():
    labels, encoding = labels_for("softmax")
    present = single_labels(labels.values % 3)
    found = baseline_of(LOSSES["softmax"], encoding, present)
    assert np.isfinite(evaluate_baseline(found, LOSSES["softmax"], encoding, labels).loss)


def test_predictions_are_named_and_have_metrics():
    for loss, prediction, metric in (
        ("logistic", "no", "accuracy"),
        ("hinge", "no", "accuracy"),
        ("softmax", "5", "accuracy"),
        ("multilabel", "the most frequent labels", "P@1"),
    ):
        labels, encoding = labels_for(loss)
        found = baseline_of(LOSSES[loss], encoding, labels)
        values = evaluate_baseline(found, LOSSES[loss], encoding, labels).metrics
        counts = np.bincount(labels.indices if len(labels.indices) else labels.values.astype(int))
        assert found.prediction == prediction
        assert values[metric] == pytest.approx(counts.max() / ROWS)
        assert values["auc"] == 0.5
    labels, encoding = labels_for("squared")
    found = baseline_of(LOSSES["squared"], encoding, labels)
    values = evaluate_baseline(found, LOSSES["squared"], encoding, labels).metrics
    assert found.prediction == f"the mean, {labels.values.mean() * 4 + 10:.6g}"
    assert values["rmse"] == pytest.approx(labels.values.std() * 4)
    assert values["r2"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("loss", ["squared", "quantile:0.8"])
def test_the_baseline_of_several_targets_is_the_mean_of_those_of_each(loss):
    random = np.random.default_rng(4)
    targets, weights = random.standard_normal((ROWS, 2)), random.random(ROWS)
    offset, scale = (10.0, -3.0), (4.0, 0.1)

    def result(encoding, values):
        labels = single_labels(values.flatten().astype(np.float32))
        labels = labels._replace(weights=weights.astype(np.float32))
        found = baseline_of(LOSSES[loss], encoding, labels)
        return evaluate_baseline(found, LOSSES[loss], encoding, labels)

    together = result(Encoding("real", (), 2, offset, scale), targets)
    each = [result(Encoding("real", (), 1, offset[n], scale[n]), targets[:, n]) for n in range(2)]
    power = LOSSES[loss].unit_power
    losses = [own.loss / scale[n] ** power for n, own in enumerate(each)]
    assert together.loss == pytest.approx(np.mean(losses))
    for name, value in together.metrics.items():
        assert value == pytest.approx(np.mean([own.metrics[name] for own in each]), abs=1e-9)


def test_of_many_scores_the_metrics_are_those_of_the_best_columns(monkeypatch):
    labels, encoding = labels_for("softmax")
    found, loss = baseline_of(LOSSES["softmax"], encoding, labels), LOSSES["softmax"]
    whole = evaluate_baseline(found, loss, encoding, labels)
    monkeypatch.setattr(module, "MAX_CONSTANTS", 1)
    few = evaluate_baseline(found, loss, encoding, labels)
    assert few.loss == whole.loss
    assert few.metrics == {name: whole.metrics[name] for name in few.metrics}
    assert {*few.metrics} == {"accuracy", "balanced_accuracy", "f1_macro"}
