"""Estimators with layers for pictures and sequences."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score

import hogbatch
from hogbatch import HogbatchClassifier, HogbatchMultilabel, HogbatchRegressor
from hogbatch.errors import UsageError
from hogbatch.model.file import load_model, save_model

ROWS, Y = load_digits(return_X_y=True)
PICTURES = ROWS.reshape(-1, 8, 8)
FAST = {"epochs": 8, "early_stopping": False, "random_state": 0}
LAYERS = "conv:8x3x3,relu,pool:2,dense:16"
CONVOLUTIONS = {"layers": LAYERS, **FAST}


@pytest.fixture(scope="module")
def fitted():
    return HogbatchClassifier(**CONVOLUTIONS).fit(PICTURES, Y)


def test_pictures_are_classified(fitted):
    assert fitted.score(PICTURES, Y) > 0.9
    assert (fitted.input_shape_, fitted.n_features_in_) == ((8, 8, 1), 64)
    assert cross_val_score(clone(fitted), PICTURES, Y, cv=2).min() > 0.7


def test_the_form_of_the_rows_does_not_matter(fitted):
    """Without their shape, rows of numbers would be another network."""
    flat = HogbatchClassifier(**CONVOLUTIONS, input_shape="8x8").fit(ROWS, Y)
    listed = HogbatchClassifier(**CONVOLUTIONS).fit(PICTURES.tolist(), Y)
    for model in fitted, flat, listed:
        for rows in ROWS, PICTURES, PICTURES[..., None], PICTURES.tolist():
            assert_array_equal(model.predict_proba(rows), fitted.predict_proba(ROWS))


def test_layers_are_parameters(fitted):
    assert clone(fitted).get_params()["layers"] == LAYERS
    found = GridSearchCV(fitted, {"layers": ["max", LAYERS]}, cv=2).fit(PICTURES, Y)
    assert found.best_params_ == {"layers": LAYERS}  # the largest value of all cells is no digit


def test_models_are_pickled_and_saved(fitted, tmp_path):
    save_model(fitted.model_, tmp_path / "model")
    copies = pickle.loads(pickle.dumps(fitted)), load_model(tmp_path / "model")
    for copy in copies:
        assert_array_equal(copy.predict(PICTURES), fitted.predict(PICTURES))


def test_training_continues_with_the_same_layers():
    model = HogbatchClassifier(**CONVOLUTIONS, warm_start=True)
    model.partial_fit(PICTURES[:100], Y[:100], classes=range(10))
    network = model.model_.network
    model.set_params(layers="max").partial_fit(ROWS, Y).fit(PICTURES, Y)
    assert model.model_.network == network and model.score(PICTURES, Y) > 0.9


def test_sequences_are_a_number_or_labels():
    sequences = np.random.default_rng(0).normal(size=(500, 6, 2))
    last, first = sequences[:, -1, 0], sequences[:, 0] > 0
    number = HogbatchRegressor("auto", layers="lstm:8,last", lr=0.05, **FAST)
    assert number.fit(sequences, last).score(sequences, last) > 0.8
    labels = HogbatchMultilabel(layers="conv1d:8x1,relu,dense:16", lr=0.05, **FAST)
    assert labels.fit(sequences, first).score(sequences, first) > 0.8
    assert labels.input_shape_ == number.input_shape_ == (1, 6, 2)


def test_other_shapes_are_refused(fitted):
    for model in fitted, fitted.model_:
        with pytest.raises(UsageError, match="expected rows of shape 8x8x1; got 4x16"):
            model.predict(PICTURES.reshape(-1, 4, 16))
    with pytest.raises(UsageError, match="expected rows of shape 8x8; got 4x16"):
        given = {"X_validation": PICTURES.reshape(-1, 4, 16), "y_validation": Y}
        hogbatch.train(PICTURES, Y, layers="max", quiet=True, **given)
    with pytest.raises(ValueError, match="63 features, but HogbatchClassifier is expecting 64"):
        fitted.predict(ROWS[:, :63])


@pytest.mark.parametrize(
    ("rows", "parameters", "said"),
    [
        (ROWS, {}, "needs the shape of a row"),
        (ROWS, {"input_shape": "9x9"}, "rows of shape 9x9x1, 81 values"),
        (PICTURES, {"input_shape": "9x9"}, "rows of shape 9x9x1; got 8x8"),
        (PICTURES, {"layers": "conv:8"}, "got 'conv:8'"),
        (PICTURES, {"hidden": (8,)}, "--layers or --hidden; got both"),
        (scipy.sparse.csr_array(ROWS), {"input_shape": "8x8"}, "these are sparse"),
    ],
)
def test_layers_that_do_not_suit_the_rows_are_refused(rows, parameters, said):
    with pytest.raises(UsageError, match=said):
        HogbatchClassifier(**CONVOLUTIONS | parameters).fit(rows, Y)


def test_a_network_without_dense_layers_has_no_coefficients():
    """Its output layer is the only dense one, as in a linear model."""
    model = HogbatchClassifier(**CONVOLUTIONS | {"layers": "max"}).fit(PICTURES, Y)
    for name in "coef_", "feature_importances_":
        assert not hasattr(model, name)
