"""The confusion matrix and the calibration, from known scores."""

import numpy as np
import pytest

from hogbatch.views.report.evaluation import calibration_bins, quality_of
from hogbatch.views.report.quality import calibration, confusion_table
from tests.support.trained_models import model_for


def test_the_confusion_matrix_counts_rows_by_true_and_predicted_label():
    scores = np.eye(3, dtype=np.float32)[[0, 1, 1, 2, 2, 2]]
    quality = quality_of(model_for("softmax"), scores, np.array([0, 1, 2, 2, 2, 0]))
    assert quality.labels == ("2", "5", "7.5") and quality.bins == ()
    assert quality.confusion == ((1, 0, 1), (0, 1, 0), (0, 1, 2))
    table = confusion_table(quality)
    assert table.rows[2] == ("7.5", "0", "1", "2", "66.7%")
    assert table.note == "4 of 6 test rows are predicted correctly (66.67%)."


def test_a_binary_model_has_a_calibration():
    scores = np.array([[-4.0], [-4.0], [4.0], [4.0]], np.float32)
    quality = quality_of(model_for("logistic"), scores, np.array([0, 1, 1, 1]))
    assert quality.confusion == ((1, 0), (1, 2))
    low, high = quality.bins
    assert (low.observed, low.rows, high.observed, high.rows) == (0.5, 2, 1.0, 2)
    assert low.predicted == pytest.approx(0.018, abs=1e-3)
    assert calibration(quality).curves[0].points == [(b.predicted, b.observed) for b in (low, high)]


def test_a_model_without_probabilities_has_no_calibration():
    quality = quality_of(model_for("hinge"), np.array([[1.0]], np.float32), np.array([1]))
    assert quality.confusion == ((0, 0), (0, 1)) and quality.bins == ()


def test_probabilities_of_0_and_1_are_in_the_outer_bins():
    bins = calibration_bins(np.array([0.0, 1.0, 1.0], np.float32), np.array([0, 1, 0]))
    assert [(each.predicted, each.observed, each.rows) for each in bins] == [(0, 0, 1), (1, 0.5, 2)]
