"""Several numbers per row."""

import numpy as np
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

import hogbatch
from hogbatch.model.file import load_model
from hogbatch.model.prediction import DataFile, evaluate_file, predict_file, predict_table

USUAL = {"quiet": True, "deterministic": True, "seed": 1, "epochs": 3}
random = np.random.default_rng(2)
X = random.normal(size=(240, 6)).astype(np.float32)
Y = X @ random.normal(size=(6, 3)) * [1, 100, 0.01] + [5, -300, 0]


@pytest.mark.parametrize("optimizer", ["adagrad", "momentum"])
def test_a_linear_model_of_several_targets_is_as_many_models_of_one(optimizer):
    settings = {"hidden": (), "optimizer": optimizer, "test_fraction": 0.25}
    together = hogbatch.train(X, Y, **USUAL, **settings)
    alone = [hogbatch.train(X, y, **USUAL, **settings) for y in Y.T]
    each = np.stack([run.model.predict(X) for run in alone], axis=1)
    np.testing.assert_allclose(together.model.predict(X), each, rtol=1e-3, atol=1e-3)
    scales = [run.model.encoding.scale for run in alone]
    standardised = [run.test_loss / scale**2 for run, scale in zip(alone, scales, strict=True)]
    assert together.test_loss == pytest.approx(np.mean(standardised), rel=1e-3)


def test_a_model_of_several_targets_is_saved_evaluated_and_predicts(tmp_path):
    labels, path, rows = Y.copy(), str(tmp_path / "model.safetensors"), str(tmp_path / "rows.npz")
    labels[7, 1] = np.nan  # a row that lacks one of its targets is left out
    run = hogbatch.train(X, labels, X_test=X, y_test=Y, hidden=(8,), metric="rmse", **USUAL)
    run.save(path)
    predicted = load_model(path).predict(X)
    np.testing.assert_array_equal(predicted, run.model.predict(X))
    np.savez(rows, X=X, y=Y)
    measured, tested = evaluate_file(path, DataFile(rows)), run.summary["test"]
    for name, expected in (
        ("rmse", root_mean_squared_error),
        ("mae", mean_absolute_error),
        ("r2", r2_score),
    ):
        assert measured[name] == pytest.approx(expected(Y, predicted), rel=1e-9)
        assert tested["values"][name] == pytest.approx(measured[name], rel=1e-5)
    assert tested["loss"] == pytest.approx(measured["loss"], rel=1e-5)
    header, *lines = predict_table(path, DataFile(rows))
    assert header == "prediction_0,prediction_1,prediction_2"
    table = np.array([line.split(",") for line in lines], float)
    np.testing.assert_allclose(table, predicted, rtol=1e-6)
    plain = np.array([line.split() for line in predict_file(path, DataFile(rows))], float)
    np.testing.assert_array_equal(plain, table)
