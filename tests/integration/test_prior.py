"""A kept model is not worse on validation rows than what predicts the same for every row."""

import numpy as np
import pytest
from scipy import sparse

import hogbatch


def noise(random):
    """100 numbers that say nothing about the classes."""
    return random.normal(size=(150, 100)), random.integers(3, size=150)


def wide(random):
    """More sparse features than rows, few of which matter."""
    X = sparse.random(400, 1_000, 0.05, "csr", random_state=random)
    score = X[:, ::20] @ random.normal(size=50)
    return X, score + random.logistic(0, score.std(), 400) > 0


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("rows", [noise, wide])
def test_a_linear_model_is_not_worse_than_the_prior(rows, deterministic):
    X, y = rows(np.random.default_rng(0))
    run = hogbatch.train(*(X, y), hidden=(), epochs=3, deterministic=deterministic, verbose=False)
    prior = run.summary["baselines"]["validation"]["loss"]
    history = run.summary["history"]
    assert history[0]["rows"] == 0 and history[0]["validation_loss"] == pytest.approx(prior)
    assert run.validation_loss <= prior * (1 + 1e-6)
    assert run.validation_loss < history[-1]["validation_loss"], "the last model is worse"
