"""Models that are trained with each loss of numbers predict what minimises it."""

import numpy as np
import pytest
from sklearn.linear_model import PoissonRegressor

import hogbatch
from hogbatch import HogbatchRegressor
from hogbatch.errors import UsageError

ROWS = 600
LINEAR = {"hidden": (), "l2": 0.0, "epochs": 200}
RANDOM = np.random.default_rng(0)
GROUP = np.arange(ROWS) % 2
SKEWED = 50 + 20 * GROUP + 10 * RANDOM.exponential(size=ROWS)


def trained(X, y, loss, path):
    """The model of a run, after it was saved and loaded."""
    settings = LINEAR | {
        "test_fraction": 0.0,
        "validation_fraction": 0.0,
        "deterministic": True,
        "quiet": True,
    }
    run = hogbatch.train(X, y, loss=loss, **settings)
    run.save(path)
    return hogbatch.load_model(path)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("absolute", np.median),
        ("quantile:0.1", lambda y: np.quantile(y, 0.1)),
        ("quantile:0.9", lambda y: np.quantile(y, 0.9)),
    ],
)
def test_the_median_and_quantiles_of_two_groups(loss, expected, tmp_path):
    model = trained(GROUP[:, np.newaxis].astype(float), SKEWED, loss, tmp_path / "model")
    predicted = model.predict(np.array([[0.0], [1.0]]))
    assert predicted == pytest.approx([expected(SKEWED[g == GROUP]) for g in (0, 1)], abs=0.5)


def test_huber_means_are_those_of_errors_bounded_by_one_standard_deviation(tmp_path):
    model = trained(GROUP[:, np.newaxis].astype(float), SKEWED, "huber", tmp_path / "model")
    for g, predicted in enumerate(model.predict(np.array([[0.0], [1.0]]))):
        errors = (predicted - SKEWED[g == GROUP]) / SKEWED.std()
        assert np.clip(errors, -1, 1).mean() == pytest.approx(0, abs=0.02)


def test_poisson_regression_is_that_of_scikit_learn():
    X = RANDOM.normal(size=(ROWS, 2))
    y = RANDOM.poisson(np.exp(1 + X @ [0.5, -0.8]))
    expected = PoissonRegressor(alpha=0, max_iter=1000, tol=1e-8).fit(X, y).predict(X)
    estimator = HogbatchRegressor(
        loss="poisson", random_state=0, early_stopping=False, **LINEAR
    ).fit(X, y)
    np.testing.assert_allclose(estimator.predict(X), expected, rtol=0.005)


def test_a_loss_of_classes_is_refused():
    with pytest.raises(
        UsageError, match=r"loss: expected one of squared, huber, .*; got 'softmax'"
    ):
        HogbatchRegressor(loss="softmax").fit(np.eye(3), np.arange(3.0))
