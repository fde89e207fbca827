import numpy as np
import pytest

from hogbatch.data.load import prepare
from hogbatch.data.memory import raw_set
from hogbatch.data.weights import read_class_weights
from hogbatch.errors import DataError, UsageError

ROWS = 60
CLASSES = np.array(["few", "many", "many", "many", "some", "some"] * 10)


def weighted(class_weight, own=None, y=CLASSES):
    """The labels of the training and the test rows."""
    x = np.random.default_rng(0).normal(size=(ROWS, 2))
    data = prepare(raw_set(x, y, own), class_weight=class_weight, scale="none")
    return [data.sets["train"].labels, data.sets["test"].labels]


@pytest.mark.parametrize("own", [None, np.arange(1.0, ROWS + 1)])
def test_balanced_classes_have_the_same_total_weight_in_the_training_rows(own):
    train, _ = weighted("balanced", own)
    totals = np.bincount(train.values.astype(int), train.weights)
    np.testing.assert_allclose(totals, len(train.values) / 3, rtol=1e-5)


def test_the_weight_of_a_class_multiplies_those_of_its_training_and_test_rows():
    own = np.arange(1.0, ROWS + 1)
    both = weighted(None, own), weighted({"few": 5, "some": 0.5}, own)
    for plain, multiplied in zip(*both, strict=True):
        factors = np.array([5, 1, 0.5])[plain.values.astype(int)]
        ratios = multiplied.weights / plain.weights / factors
        np.testing.assert_allclose(ratios, ratios[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("class_weight", "y", "message"),
    [
        ({"fewer": 2.0}, CLASSES, "no row has the class 'fewer'; classes are few, many, some"),
        ({"few": 0.0}, CLASSES, "expected weights above 0; got 0.0 of 'few'"),
        ("equal", CLASSES, "expected 'balanced' or weights by class; got 'equal'"),
        ("balanced", np.linspace(0, 1, ROWS), "expected labels that are classes; got numbers"),
    ],
)
def test_weights_of_classes_that_do_not_fit_are_refused(class_weight, y, message):
    with pytest.raises(UsageError, match=f"class_weight: {message}"):
        weighted(class_weight, y=y)


def test_a_file_of_class_weights_has_a_class_and_a_weight_per_line(write):
    path = str(write("weights.csv", '\ufefffew,5\n\n"a, b" , 0.5\n'))
    assert read_class_weights(path) == {"few": 5, "a, b": 0.5}
    assert (read_class_weights(None), read_class_weights("balanced")) == (None, "balanced")
    with pytest.raises(DataError, match=r"bad\.csv:2: expected a class and its weight, such as"):
        read_class_weights(str(write("bad.csv", "few,5\nmany\n")))
    with pytest.raises(DataError, match=r"expected balanced, or a file .*: No such file"):
        read_class_weights(path + "x")
