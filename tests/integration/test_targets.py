"""Several numbers per row."""

import json

import numpy as np
import pandas
import pytest
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.model_selection import cross_val_score

import hogbatch
from hogbatch.model.file import load_model
from hogbatch.model.prediction import DataFile, evaluate_file, predict_file
from tests.support.fault_injection import cli

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
    header, *lines = predict_file(path, DataFile(rows), table=True)
    assert header == "prediction_0,prediction_1,prediction_2"
    table = np.array([line.split(",") for line in lines], float)
    np.testing.assert_allclose(table, predicted, rtol=1e-6)
    plain = np.array([line.split() for line in predict_file(path, DataFile(rows))], float)
    np.testing.assert_array_equal(plain, table)


def table(tmp_path):
    """A table with the columns size, a, colour, b, and a file of it."""
    colours = np.array(["red", "green", "blue"])[np.arange(len(X)) % 3]
    frame = pandas.DataFrame({"size": X[:, 0], "a": Y[:, 1], "colour": colours, "b": Y[:, 0]})
    frame.to_csv(tmp_path / "table.csv", index=False)
    return frame, str(tmp_path / "table.csv")


def test_targets_are_columns_of_a_table_in_the_shell(tmp_path, main):
    frame, path = table(tmp_path)
    usual = ["--deterministic", "--seed", "1", "--epochs", "3", "--hidden", "8", "--quiet"]

    def shell(*arguments):
        done = main(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    shell("train", path, "--label", "b,a", *usual, "--run-dir", str(tmp_path / "run"))
    model = str(tmp_path / "run" / "model.safetensors")
    header, *lines = cli("predict", model, path, "--output", "/dev/stdout").stdout.splitlines()
    assert header == "prediction_b,prediction_a"
    predicted = np.array([line.split(",") for line in lines], float)
    in_python = hogbatch.train(frame, label=["b", "a"], hidden=(8,), **USUAL).model
    np.testing.assert_allclose(in_python.predict(frame[["size", "colour"]]), predicted, rtol=1e-6)
    measured = json.loads(shell("evaluate", model, path, "--json"))
    true = frame[["b", "a"]].to_numpy()
    assert measured["rmse"] == pytest.approx(root_mean_squared_error(true, predicted), rel=1e-5)
    report = tmp_path / "report.html"
    shell("report", str(tmp_path / "run"), "--output", str(report))
    assert "b: mean absolute error" in report.read_text()


def test_estimators_are_cross_validated_with_several_targets():
    model = hogbatch.HogbatchRegressor(hidden=(), epochs=20, random_state=1)
    scores = cross_val_score(model, X, Y, cv=2)
    assert min(scores) > 0.8
    marks = (Y > 0).astype(float)  # 0 and 1 are numbers for a regressor
    assert model.fit(X, marks).predict(X).shape == Y.shape
