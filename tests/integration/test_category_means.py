"""Mean labels of categories with many values (`--category-means`): training and later rows."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import root_mean_squared_error

import hogbatch
from hogbatch import HogbatchClassifier, HogbatchRegressor
from hogbatch.model.file import load_model

ROWS, VALUES = 3_000, 900
RANDOM = np.random.default_rng(0)
CODES = RANDOM.integers(VALUES, size=ROWS)
X = pd.DataFrame({"shop": [f"shop {n}" for n in CODES], "size": RANDOM.normal(size=ROWS)})
Y = RANDOM.normal(size=VALUES)[CODES] + X["size"].to_numpy() + RANDOM.normal(0, 0.7, ROWS)
TRAIN, LATER = slice(2_000), slice(2_000, None)
QUIET = {"quiet": True, "deterministic": True, "members": 1, "test_fraction": 0.0}


def error(predict):
    return root_mean_squared_error(Y[LATER], predict(X[LATER]))


@pytest.fixture(scope="module")
def runs():
    each = ("auto", "none")
    return {own: hogbatch.train(X[TRAIN], Y[TRAIN], category_means=own, **QUIET) for own in each}


def test_means_lower_the_error_of_later_rows(runs):
    with_means, without = (error(runs[name].model.predict) for name in ("auto", "none"))
    assert with_means < 0.97 * without


def test_a_model_file_keeps_the_means(runs, tmp_path):
    model = runs["auto"].model
    runs["auto"].save(tmp_path / "model")
    later = X[LATER].replace("shop 7", "an unknown shop")
    np.testing.assert_array_equal(
        load_model(tmp_path / "model").predict(later), model.predict(later)
    )
    assert model.network.features == runs["none"].model.network.features + 1


def test_estimators_have_means_unless_later_fits_may_have_the_same_rows():
    settings = {"epochs": 1, "early_stopping": False, "random_state": 0}

    def labels(model):
        return sum(getattr(own.encoder, "labels", 0) for own in model.trained_.model.table.columns)

    assert labels(HogbatchRegressor(**settings).fit(X, Y)) == 1
    three = np.digitize(Y, (-0.5, 0.5))
    assert labels(HogbatchClassifier(**settings).fit(X, three)) == 3
    for other in ({"category_means": "none"}, {"warm_start": True}):
        assert labels(HogbatchRegressor(**settings, **other).fit(X, Y)) == 0
    assert labels(HogbatchRegressor(random_state=0).partial_fit(X, Y)) == 0


def test_a_linear_model_with_means_has_importances():
    model = HogbatchRegressor(hidden=(), epochs=5, early_stopping=False, random_state=0).fit(X, Y)
    assert model.feature_importances_.shape == (2,) and (model.feature_importances_ > 0).all()
