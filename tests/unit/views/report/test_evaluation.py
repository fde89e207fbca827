"""The quality of predictions, from known scores and numbers."""

import numpy as np
import pytest

from hogbatch.views.report import evaluation
from hogbatch.views.report.evaluation import classes_of, numbers_of, quality_of
from hogbatch.views.report.figures import calibration, predicted_numbers, residuals
from hogbatch.views.report.tables import class_table, confusion_table, number_table
from tests.support.trained_models import model_for


def test_the_confusion_matrix_counts_rows_by_true_and_predicted_label():
    scores = np.eye(3, dtype=np.float32)[[0, 1, 1, 2, 2, 2]]
    quality = quality_of(model_for("softmax"), scores, np.array([0, 1, 2, 2, 2, 0]))
    assert quality.labels == ("2", "5", "7.5") and quality.bins == ()
    assert quality.confusion == ((1, 0, 1), (0, 1, 0), (0, 1, 2))
    table = confusion_table(quality)
    assert table.rows[2] == ("7.5", "0", "1", "2", "66.7%")
    assert table.note == "4 of 6 test rows are predicted correctly (66.67%)."


def test_a_binary_model_with_probabilities_has_a_calibration():
    scores, true = np.array([[-100], [4], [4], [100]], np.float32), np.array([0, 0, 1, 1])
    quality = quality_of(model_for("logistic"), scores, true)
    assert quality.confusion == ((1, 1), (0, 2))
    low, high = quality.bins  # the outer ones, with probabilities of 0 and 1
    assert (low.predicted, low.observed, low.rows) == (pytest.approx(0), 0, 1)
    assert (high.predicted, high.observed, high.rows) == (pytest.approx(0.988, abs=1e-3), 2 / 3, 3)
    drawn = calibration(quality).axes.lines[-1]
    assert list(zip(*drawn.get_data(), strict=True)) == [b[:2] for b in (low, high)]
    assert quality_of(model_for("hinge"), scores, true).bins == ()


def test_the_worst_of_many_classes_come_first(monkeypatch):
    """Class a is always right, b is taken for a in 3 of 6 rows, c always for b; d is rare."""
    true = np.array([0] * 8 + [1] * 6 + [2] * 5 + [3])
    predicted = np.array([0] * 8 + [1, 1, 1, 0, 0, 2] + [1] * 5 + [0])
    quality = classes_of(("a", "b", "c", "d", "e"), predicted, true)
    assert [each[:3] for each in quality.worst] == [("c", 5, 0), ("b", 6, 3), ("a", 8, 8)]
    assert [each[3:] for each in quality.worst] == [("b", 5), ("a", 2), ("", 0)]
    assert (quality.classes, quality.rows, quality.correct) == (4, 20, 11)
    assert quality.mean_correct == pytest.approx((1 + 0.5 + 0 + 0) / 4)
    table = class_table(quality)
    assert table.rows[1] == ("b", "6", "50.0%", "a (2)") and table.rows[2][3] == "-"
    assert table.note.startswith("11 of 20 test rows are predicted correctly (55.00%), and on av")
    monkeypatch.setattr(evaluation, "MAX_WORST", 1)
    assert [each.label for each in classes_of("abcde", predicted, true).worst] == ["c"]
    assert [each.label for each in classes_of("ab", np.array([1]), np.array([0])).worst] == ["a"]


def test_predicted_numbers_have_measures_points_and_residuals():
    true = np.linspace(1e5, 2e5, 2000)
    predicted = true + np.where(np.arange(2000) % 2, 3000.0, -1000.0)
    predicted[7] += 1e6
    quality = numbers_of(predicted, true)
    measures = dict(quality.measures)
    rmse = np.sqrt(((predicted - true) ** 2).mean())
    assert measures["root mean squared error (rmse)"] == pytest.approx(rmse)
    assert measures["median absolute error"] == pytest.approx(2000)
    assert measures["R²"] == pytest.approx(1 - rmse**2 / true.var())
    assert len(quality.points) == 500 and quality.points[0] == (true[0], predicted[0])
    assert sum(each.rows for each in quality.residuals) == 2000
    assert (quality.residuals[0].low, quality.residuals[-1].high) == (-1000.0, 3000.0)
    assert ("mean absolute error", "2,500.0") in number_table(quality).rows
    for chart in (predicted_numbers(quality), residuals(quality)):
        assert chart.svg() is not None
    constant = numbers_of(np.array([1.0]), np.array([1.0]))
    assert "R²" not in dict(constant.measures) and residuals(constant).svg() is not None


def test_numbers_beyond_what_can_be_drawn_are_left_out():
    quality = numbers_of(np.array([1e120, -1e120]), np.array([0.0, 0.0]))
    assert predicted_numbers(quality).svg() is residuals(quality).svg() is None
