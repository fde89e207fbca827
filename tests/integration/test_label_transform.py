"""Labels as logarithms (`--label-transform`): training, the choice, and everything after it."""

import numpy as np
import pytest
from sklearn.metrics import root_mean_squared_error

import hogbatch
from hogbatch import HogbatchRegressor
from hogbatch.errors import DataError, UsageError
from hogbatch.model.file import load_model
from hogbatch.model.prediction import DataFile, evaluate_file
from hogbatch.run import better_data

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(800, 3))
Y = np.exp(4 + X @ [1.2, -0.8, 0.4])  # of a linear model of logarithms, without noise
LINEAR = {"hidden": (), "epochs": 60, "deterministic": True, "quiet": True, "loss": "squared"}
ALL_ROWS = LINEAR | {"test_fraction": 0.0, "validation_fraction": 0.0}


@pytest.fixture
def ratio(monkeypatch):
    """Set the ratio of the errors with and without logarithms, instead of short runs."""
    compared = []

    def choose(value):
        def errors(*_):
            compared.append(value)
            return [1.0, value**2]

        monkeypatch.setattr(better_data, "mean_errors", errors)
        return compared

    return choose


def test_the_model_is_that_of_logarithms_and_predicts_numbers(tmp_path):
    logs = hogbatch.train(X, np.log1p(Y), **ALL_ROWS).model
    run = hogbatch.train(X, Y, label_transform="log1p", **ALL_ROWS)
    expected = np.expm1(logs.predict(X)).clip(0, Y.max())
    np.testing.assert_allclose(run.model.predict(X), expected, rtol=1e-4)
    run.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(X), run.model.predict(X))
    far = 50 * np.abs(X[:3]) * [1, -1, 1]
    assert run.model.predict(far) == pytest.approx(Y.max())


def test_metrics_are_in_the_unit_of_the_labels(tmp_path):
    held_out = {"X_validation": X[:300], "y_validation": Y[:300]}
    later = {"X_test": X[300:400], "y_test": Y[300:400]}
    run = hogbatch.train(X[400:], Y[400:], label_transform="log1p", **LINEAR, **held_out, **later)
    error = root_mean_squared_error(Y[:300], run.model.predict(X[:300]))
    assert run.summary["validation"]["value"] == pytest.approx(error, rel=1e-4)
    assert min(each["validation_rmse"] for each in run.metrics_history) == pytest.approx(
        error, rel=1e-4
    )
    tested = run.summary["test"]["values"]["rmse"]
    np.savetxt(tmp_path / "a.csv", np.c_[X, Y][300:400], fmt="%.17g", delimiter=",")
    run.save(tmp_path / "model")
    measured = evaluate_file(tmp_path / "model", DataFile(str(tmp_path / "a.csv")))
    assert measured["rmse"] == pytest.approx(tested, rel=1e-4)
    assert measured["loss"] == pytest.approx(run.test_loss, rel=1e-4)
    always = root_mean_squared_error(Y[300:400], np.full(100, Y[400:].mean()))
    assert run.summary["baselines"]["test"]["values"]["rmse"] == pytest.approx(always, rel=1e-4)


def test_short_runs_choose_logarithms_of_labels_with_a_heavy_tail(capfd):
    run = hogbatch.train(X, Y, **LINEAR | {"quiet": False})
    assert run.label_transform == "log1p" and run.model.encoding.kind == "logs"
    assert "label transform: log1p; short runs have a validation rmse of" in capfd.readouterr().out
    assert HogbatchRegressor(hidden=(), random_state=0).fit(X, Y).model_.encoding.kind == "logs"


@pytest.mark.parametrize(("value", "kind"), [(0.95, "real"), (0.8, "logs")])
def test_the_error_must_be_clearly_lower(ratio, value, kind):
    compared = ratio(value)
    assert hogbatch.train(X, Y, **ALL_ROWS).model.encoding.kind == kind
    assert compared == [value]


@pytest.mark.parametrize(
    ("labels", "settings"),
    [
        (np.log(Y), {}),  # no heavy tail
        (Y - Y.mean(), {}),  # negative labels
        (np.c_[Y, Y], {}),  # several targets
        (Y, {"loss": "absolute"}),
        (Y, {"label_transform": "none"}),
    ],
)
def test_other_runs_compare_nothing(ratio, labels, settings):
    compared = ratio(0.1)
    run = hogbatch.train(X, labels, **ALL_ROWS | {"epochs": 1} | settings)
    assert run.model.encoding.kind == "real" and not compared


def test_few_rows_compare_nothing(ratio):
    compared = ratio(0.1)
    run = hogbatch.train(X[:400], Y[:400], **ALL_ROWS)
    assert run.model.encoding.kind == "real" and not compared


def test_the_choice_is_made_once_for_members_refit_and_resume(ratio, tmp_path, main):
    compared = ratio(0.5)
    small = LINEAR | {"epochs": 2}
    ensemble = hogbatch.train(X, Y, members=3, **small).model
    assert len(ensemble.members) == 3 and ensemble.encoding.kind == "logs"
    assert hogbatch.train(X, Y, refit=True, **small).model.encoding.kind == "logs"
    assert len(compared) == 2
    np.savetxt(tmp_path / "a.csv", np.c_[X, Y], fmt="%.17g", delimiter=",")
    directory = tmp_path / "run"
    done = hogbatch.train(str(tmp_path / "a.csv"), run_dir=str(directory), **small)
    again = hogbatch.train(str(tmp_path / "a.csv"), resume=str(directory), epochs=4, quiet=True)
    assert done.model.encoding == again.model.encoding and len(compared) == 3
    assert 'label-transform = "log1p"' in (directory / "config.toml").read_text()
    report = main("report", str(directory))
    assert "no longer" not in report.stdout + report.stderr and not report.returncode


def test_later_rows_are_encoded_as_the_first_ones(ratio, tmp_path):
    compared = ratio(0.5)
    estimator = HogbatchRegressor(hidden=(), epochs=5, members=1, warm_start=True).fit(X, Y)
    assert estimator.fit(X[:100], Y[:100]).model_.encoding.kind == "logs"
    run = hogbatch.train(X, Y, **LINEAR)
    run.save(tmp_path / "model")
    again = hogbatch.train(X, Y, init=str(tmp_path / "model"), **LINEAR)
    assert again.model.encoding == run.model.encoding and len(compared) == 2
    part = HogbatchRegressor(hidden=()).partial_fit(X, Y)
    assert part.model_.encoding.kind == "real" and len(compared) == 2


@pytest.mark.parametrize(
    ("labels", "settings", "message", "error"),
    [
        (
            Y,
            {"loss": "huber"},
            "needs labels that are numbers, and --loss squared; got --loss huber",
            UsageError,
        ),
        (
            Y > 50,
            {"loss": "auto"},
            "--loss squared; got --loss auto and labels that are binary",
            UsageError,
        ),
        (Y - 60, {}, "log1p needs labels of at least 0; got -", DataError),
        (0 * Y, {}, "log1p needs a label above 0; every label is 0", DataError),
    ],
)
def test_unsuitable_labels_and_losses_are_refused(labels, settings, message, error):
    with pytest.raises(error, match=message):
        hogbatch.train(X, labels, label_transform="log1p", **LINEAR | settings)
