"""The tables and figures of predictions, from known classes, probabilities and numbers."""

import numpy as np
import pytest

from hogbatch.views.report import predictions
from hogbatch.views.report.evaluation import of_few_classes
from hogbatch.views.report.predictions import (
    class_table,
    measures,
    number_table,
    predicted_numbers,
    residuals,
)
from tests.support.trained_models import model_for


def points(chart, line):
    return list(zip(*map(list, chart.axes.lines[line].get_data()), strict=True))


def test_the_confusion_matrix_counts_rows_by_true_and_predicted_label():
    scores, true = np.eye(3, dtype=np.float32)[[0, 1, 1, 2, 2, 2]], np.array([0, 1, 2, 2, 2, 0])
    (table,) = of_few_classes(model_for("softmax"), scores, true, "test")
    assert [row[1:4] for row in table.rows] == [("1", "0", "1"), ("0", "1", "0"), ("0", "1", "2")]
    assert table.rows[2] == ("7.5", "0", "1", "2", "66.7%")
    assert table.shades[2] == (0, 0.5, 1)
    assert table.note == "4 of 6 test rows are predicted correctly (66.67%)."


def test_a_binary_model_with_probabilities_has_a_calibration():
    scores, true = np.array([[-100], [4], [4], [100]], np.float32), np.array([0, 0, 1, 1])
    table, chart, bins = of_few_classes(model_for("logistic"), scores, true, "validation")
    assert [row[1:3] for row in table.rows] == [("1", "1"), ("0", "2")]
    assert bins.rows == (("0.000", "0.000", "1"), ("0.988", "0.667", "3"))
    outer = [(pytest.approx(0), 0), (pytest.approx(0.988, abs=1e-3), 2 / 3)]
    assert points(chart, -1) == outer, "those with probabilities of 0 and 1 are in them"
    assert "validation" in chart.title and "Validation rows" in chart.note
    assert len(of_few_classes(model_for("hinge"), scores, true, "test")) == 1


def test_the_worst_of_many_classes_come_first(monkeypatch):
    """Class a is always right, b is taken for a in 3 of 6 rows, c always for b; d is rare."""
    true = np.array([0] * 8 + [1] * 6 + [2] * 5 + [3])
    predicted = np.array([0] * 8 + [1, 1, 1, 0, 0, 2] + [1] * 5 + [0])
    table = class_table("abcde", predicted, true, "test")
    of_b = ("b", "6", "50.0%", "a (2)")
    assert table.rows == (("c", "5", "0.0%", "b (5)"), of_b, ("a", "8", "100.0%", "-"))
    assert table.note == (
        "11 of 20 test rows are predicted correctly (55.00%), and on average 37.50% of each of 4 "
        "classes."
    )
    monkeypatch.setattr(predictions, "MAX_WORST", 1)
    assert [row[0] for row in class_table("abcde", predicted, true, "test").rows] == ["c"]
    rare = class_table("ab", np.array([1]), np.array([0]), "test")
    assert [row[0] for row in rare.rows] == ["a"]


def test_predicted_numbers_have_measures_points_and_residuals():
    true = np.linspace(1e5, 2e5, 2000)
    predicted = true + np.where(np.arange(2000) % 2, 3000.0, -1000.0)
    predicted[7] += 1e6
    found = dict(measures(predicted, true))
    rmse = np.sqrt(((predicted - true) ** 2).mean())
    assert found["root mean squared error (rmse)"] == pytest.approx(rmse)
    assert found["median absolute error"] == pytest.approx(2000)
    assert found["R²"] == pytest.approx(1 - rmse**2 / true.var())
    assert ("mean absolute error", "2,500.0") in number_table(found.items(), "test").rows
    drawn = points(predicted_numbers(predicted, true, "test"), 0)
    assert len(drawn) == 500 and drawn[0] == (true[0], predicted[0])
    bars = residuals(predicted, true, "test").axes.patches
    assert sum(bar.get_height() for bar in bars) == 2000
    assert bars[0].get_x() == -1000 and bars[-1].get_x() + bars[-1].get_width() == 3000


def test_one_number_has_residuals_but_no_fraction_of_the_variance():
    number = np.array([1.0])
    assert "R²" not in dict(measures(number, number))
    assert residuals(number, number, "test").svg() is not None


def test_numbers_beyond_what_can_be_drawn_are_left_out():
    numbers = np.array([1e120, -1e120]), np.array([0.0, 0.0])
    assert predicted_numbers(*numbers, "test").svg() is residuals(*numbers, "test").svg() is None
