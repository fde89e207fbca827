"""Dropout in whole runs."""

import numpy as np
import pytest
from sklearn import metrics as sk

import hogbatch

SETTINGS = {"hidden": (32, 16), "epochs": 3, "deterministic": True, "verbose": False}


def test_it_is_part_of_training_but_not_of_evaluation_or_prediction():
    random = np.random.default_rng(0)
    X = random.normal(size=(500, 8)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + random.normal(size=500) > 0
    held_out = {"X_validation": X[300:400], "y_validation": y[300:400]}
    held_out |= {"X_test": X[400:], "y_test": y[400:]}

    def trained(**flags):
        return hogbatch.train(X[:300], y[:300], **held_out, **SETTINGS, **flags)

    runs = ({"dropout": 0.4}, {"dropout": 0.4}, {}, {"dropout": 0.0})
    run, again, plain, none = (trained(**flags) for flags in runs)
    scores = run.model.scores(X)
    np.testing.assert_array_equal(again.model.scores(X), scores)
    np.testing.assert_array_equal(none.model.scores(X), plain.model.scores(X))
    assert np.abs(scores - plain.model.scores(X)).max() > 0.01
    predicted = run.model.predict_proba(X[400:])
    assert run.test_loss == pytest.approx(sk.log_loss(y[400:], predicted), abs=1e-5)
