"""Mean labels of the values of a category."""

import numpy as np
import pytest

from hogbatch.data.batch import multi_labels, single_labels
from hogbatch.data.encode import Encoding
from hogbatch.data.order import fold_numbers
from hogbatch.data.table import means
from hogbatch.data.table.means import means_of_other_rows, shrunk_means, targets_of

RANDOM = np.random.default_rng(0)
TWO, NUMBERS = Encoding("binary", ("no", "yes"), 1), Encoding("real", (), 1)


def drawn(rows, deviation, values=300):
    """Places, targets and effects of values with this standard deviation; that of noise is 1."""
    places = RANDOM.integers(values, size=rows)
    effects = RANDOM.normal(0, deviation, (values, 1)) if deviation else np.zeros((values, 1))
    targets = effects[places] + RANDOM.normal(size=(rows, 1))
    return places, targets - targets.mean(axis=0), effects


@pytest.mark.parametrize("deviation", [0.3, 1.0, 3.0])
def test_means_are_the_best_linear_predictions_of_effects(deviation):
    places, targets, _ = drawn(30_000, deviation, 3_000)
    rows = np.bincount(places, minlength=3_000)
    plain = np.bincount(places, targets[:, 0], 3_000) / np.maximum(rows, 1)
    expected = plain * rows / (rows + 1 / deviation**2)
    error = shrunk_means(places, targets, 3_000)[:, 0] - expected
    assert np.sqrt(np.mean(error**2)) < 0.03 * deviation


def test_values_without_effect_have_means_near_0():
    places, targets, _ = drawn(3_000, 0)
    assert shrunk_means(places, targets, 300).std() < 0.1, "plain means have a deviation of 0.32"


def test_places_without_rows_and_single_places_have_finite_means():
    found = shrunk_means(np.zeros(5, np.intp), np.arange(5.0)[:, np.newaxis] - 2, 3)
    assert found.shape == (3, 1) and not found.any()
    assert not shrunk_means(np.arange(3), np.zeros((3, 1)), 3).any()


def test_the_mean_of_a_training_row_is_that_of_the_other_folds():
    places, targets, _ = drawn(200, 1.0, 40)
    found = means_of_other_rows(places, targets, 40)
    others = fold_numbers(200, means.FOLDS, 0) != fold_numbers(200, means.FOLDS, 0)[7]
    expected = shrunk_means(places[others], targets[others], 40)[places[7]]
    np.testing.assert_array_equal(found[7], expected)
    changed = targets.copy()
    changed[7] += 100
    assert means_of_other_rows(places, changed, 40)[7] == found[7], "its own label has no influence"
    assert not means_of_other_rows(np.arange(200), targets, 200).any(), "values of one row each"


def test_targets_are_standardised_with_the_training_rows():
    training = np.array([0, 1, 2, 3])
    found = targets_of(single_labels(np.array([1.0, 3, 1, 3, 9], np.float32)), NUMBERS, training)
    assert found.tolist() == [[-1], [1], [-1], [1], [7]]
    two = targets_of(single_labels(np.array([0, 1, 1, 1], np.float32)), TWO, None)
    np.testing.assert_allclose(two[:, 0], (np.array([0, 1, 1, 1]) - 0.75) / 0.1875**0.5)
    several = Encoding("real", (), 2, offset=(0.0, 0.0), scale=(1.0, 1.0))
    labels = single_labels(np.array([0, 5, 2, 5], np.float32))
    assert targets_of(labels, several, None).tolist() == [[-1, 0], [1, 0]], "a constant target is 0"


def test_each_class_has_targets_unless_there_are_many():
    labels = single_labels(np.array([0, 1, 2, 2], np.float32))
    found = targets_of(labels, Encoding("classes", ("a", "b", "c"), 3), None)
    assert (found > 0).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]]
    names = tuple(map(str, range(10, 11 + means.MAX_CLASSES)))
    assert targets_of(labels, Encoding("classes", names, len(names)), None) is None
    lists = multi_labels(np.array([0, 1]), np.array([0], np.int32))
    assert targets_of(lists, Encoding("multilabel", (), 3), None) is None
