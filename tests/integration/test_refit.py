"""The second run of --refit: on training and validation rows, for as many rows as were best."""

import json

import numpy as np
import pytest

import hogbatch
from hogbatch.errors import UsageError

ALIKE = {"hidden": (16,), "lr": 0.2, "deterministic": True, "verbose": False}
FIRST = {"epochs": 40, "patience": 40, "validation_fraction": 0.3}  # not for the second run
REFIT = {"refit": True, "metric": "auc", **FIRST, **ALIKE}


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 6))
    return X, X[:, 0] + random.normal(size=300) > 0  # noise, to overfit


@pytest.fixture(scope="module")
def refitted(rows, tmp_path_factory):
    return hogbatch.train(*rows, run_dir=tmp_path_factory.mktemp("refit") / "run", **REFIT)


def scores(run, rows):
    return run.model.predict_proba(rows[0])


def test_the_second_run_has_all_but_the_test_rows_and_the_best_number_of_them(rows, refitted):
    first = json.loads((refitted.run_dir / "previous-run/summary.json").read_text())
    assert first["validation"] is not None and first["test"] is None, "the test rows choose nothing"
    assert 0 < first["saved"]["rows"] < first["rows"], "the best model is an earlier one"
    summary = json.loads((refitted.run_dir / "summary.json").read_text())
    assert summary["rows"] == first["saved"]["rows"], "also if that is within an epoch"
    assert summary["validation"] is None and summary["test"]["metric"] == "auc"
    alone = hogbatch.train(*rows, validation_fraction=0, max_rows=summary["rows"], **ALIKE)
    np.testing.assert_array_equal(scores(refitted, rows), scores(alone, rows))
    assert alone.test_loss == refitted.test_loss


def test_the_scores_of_the_second_run_are_divided_by_the_temperature_of_the_first(
    rows, refitted, tmp_path
):
    run = hogbatch.train(*rows, run_dir=tmp_path, temperature="auto", **REFIT)
    first = json.loads((tmp_path / "previous-run/summary.json").read_text())
    temperature = run.summary["temperature"]
    assert temperature == pytest.approx(first["temperature"], abs=1e-6)
    assert abs(temperature - 1) > 0.01
    divided = refitted.model.scores(rows[0]) / temperature
    np.testing.assert_allclose(run.model.scores(rows[0]), divided, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("second", [False, True])
def test_a_refit_that_is_stopped_in_one_of_its_runs_goes_on(rows, refitted, second, tmp_path):
    def stop(event, _):
        return (tmp_path / "previous-run").exists() == second

    stopped = hogbatch.train(*rows, on_worker=stop, run_dir=tmp_path, **REFIT)
    assert stopped.status == "stopped" and (tmp_path / "previous-run").exists() == second
    for _ in range(2):  # without any checkpoint, and with that of the end
        run = hogbatch.train(*rows, resume="auto", run_dir=tmp_path, **REFIT)
        assert (run.status, run.summary["rows"]) == ("finished", refitted.summary["rows"])
        np.testing.assert_array_equal(scores(run, rows), scores(refitted, rows))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validation": "more.csv"}, "append them to DATA and remove --validation"),
        ({"test": "-"}, "standard input can be read only once"),
        ({"cluster": "local", "servers": 2}, "--refit has no meaning with --cluster"),
        ({"threshold": "f1"}, "leaves no validation rows"),
    ],
)
def test_a_refit_needs_data_that_can_be_split_again(settings, message):
    with pytest.raises(UsageError, match=message):
        hogbatch.train("a9a", refit=True, verbose=False, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validation_fraction": 0}, "refit needs validation rows, but there are none"),
        ({"X_validation": [[2.0]], "y_validation": [0]}, "append X_validation, y_validation"),
    ],
)
def test_a_refit_needs_validation_rows_of_the_data(settings, message):
    with pytest.raises(UsageError, match=message):
        hogbatch.train([[0.0], [1.0]], [0, 1], refit=True, verbose=False, **settings)


def test_the_second_run_has_the_recipe_of_the_first_one():
    """Which is the one for fewer rows than training and validation rows together."""
    X = np.random.default_rng(0).normal(size=(2_300, 3))
    settings = {"hidden": (4,), "epochs": 2, "validation_fraction": 0.2, "test_fraction": 0.0}
    run = hogbatch.train(X, X[:, 0], refit=True, **settings, verbose=False)
    assert run.recipe == "fast" and run.summary["validation"] is None
    assert hogbatch.train(X, X[:, 0], **settings | {"validation_fraction": 0.0}).recipe == "tabular"
