"""Coefficients of linear models, in the units of the columns that were given."""

import numpy as np
import pandas
import pytest
import scipy.sparse
from sklearn.feature_selection import RFE

from hogbatch import HogbatchClassifier, HogbatchMultilabel, HogbatchRegressor

LINEAR = {"hidden": (), "epochs": 20, "random_state": 0}
X = np.random.default_rng(0).normal(loc=[0, 5, -300], scale=[1, 10, 100], size=(200, 3))
SCORE = X[:, 0] + X[:, 1] / 10 + X[:, 2] / 100


@pytest.mark.parametrize("form", [np.array, scipy.sparse.csr_array])
@pytest.mark.parametrize(
    ("kind", "y"),
    [
        (HogbatchClassifier, SCORE > -2.5),
        (HogbatchClassifier, np.digitize(SCORE, [-3.5, -1.5])),
        (HogbatchMultilabel, np.c_[SCORE > -2.5, SCORE < -3]),
        (HogbatchRegressor, SCORE * 1e3),
        (HogbatchRegressor, np.c_[SCORE * 1e3, 5 - X[:, 0]]),
    ],
)
def test_they_give_the_scores(kind, y, form):
    rows = np.c_[X, np.full(len(X), 7.0)]  # the last column is not used
    model = kind(**LINEAR).fit(form(rows), y)
    scores = model.predict(rows) if kind is HogbatchRegressor else model.decision_function(rows)
    found = np.squeeze(rows @ model.coef_.T + model.intercept_)
    np.testing.assert_allclose(found, scores, rtol=1e-4, atol=1e-4 * np.abs(scores).max())
    one = () if kind is HogbatchRegressor else (1,)
    outputs = one if scores.ndim == 1 else scores.shape[1:]
    assert model.coef_.shape == (*outputs, 4) and np.shape(model.intercept_) == outputs
    assert not np.any(model.coef_[..., 3]) and model.feature_importances_.shape == (4,)


def test_of_counts_they_give_the_logarithm():
    model = HogbatchRegressor(**LINEAR, loss="poisson").fit(X, np.exp(SCORE).round())
    found = np.exp(X @ model.coef_ + model.intercept_)
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-4)


def test_with_log1p_they_give_the_logarithm():
    y = np.exp(SCORE + 4)
    model = HogbatchRegressor(**LINEAR, label_transform="log1p").fit(X, y)
    found = np.expm1(X @ model.coef_ + model.intercept_).clip(0, y.max())
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-4, atol=1e-9)


def test_recursive_elimination_finds_the_column_that_matters():
    noise = np.random.default_rng(1).normal(size=(200, 3))
    found = RFE(HogbatchRegressor(**LINEAR), n_features_to_select=1).fit(
        np.c_[noise, X[:, 0]], X[:, 0]
    )
    assert found.support_.tolist() == [False, False, False, True]


def test_networks_and_categories_have_none():
    assert not hasattr(HogbatchRegressor(hidden=4, epochs=1).fit(X, SCORE), "coef_")
    frame = pandas.DataFrame({"number": X[:, 0], "side": np.where(SCORE > -2.5, "up", "down")})
    model = HogbatchRegressor(**LINEAR).fit(frame, SCORE)
    with pytest.raises(AttributeError, match="feature_importances_ has one number per column"):
        _ = model.coef_
    assert model.feature_importances_.shape == (2,)
