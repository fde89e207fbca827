"""The confusion matrix and the calibration, from known scores."""

import numpy as np
import pytest

from hogbatch.views.report.evaluation import quality_of
from hogbatch.views.report.figures import calibration
from hogbatch.views.report.tables import confusion_table
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
