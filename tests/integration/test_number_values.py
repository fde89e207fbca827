"""Whole numbers whose values have features of their own (`run.better_data`)."""

import numpy as np
import pytest

import hogbatch
from hogbatch.model.file import load_model
from hogbatch.run import better_data

RANDOM = np.random.default_rng(0)
ROWS = 2_000
SETTINGS = {"epochs": 10, "deterministic": True, "hidden": (32,), "loss": "squared"}


def table(labels):
    """Rows of an hour and a number, whose labels are `labels` of each hour, plus the number."""
    hours, size = RANDOM.integers(0, 24, ROWS), RANDOM.normal(size=ROWS)
    return {"hour": hours, "size": size}, labels[hours] + size


def widths(model):
    return [own.encoder.width for own in model.table.columns]


@pytest.mark.parametrize(
    ("labels", "chosen"), [(RANDOM.normal(size=24), "features"), (np.zeros(24), "none")]
)
def test_short_runs_choose_features_of_values_that_have_labels_of_their_own(
    tmp_path, capfd, labels, chosen
):
    X, y = table(labels)
    run = hogbatch.train(X, y, scale="auto", **SETTINGS)
    assert f"values of numbers: {chosen}; short runs have" in capfd.readouterr().out
    plain = hogbatch.train(X, y, scale="standard", quiet=True, **SETTINGS).model
    more = [24, 0] if chosen == "features" else [0, 0]
    assert np.subtract(widths(run.model), widths(plain)).tolist() == more
    run.save(tmp_path / "model")
    later = {"hour": [3.0, 3.5, 99, np.nan], "size": [1.0, 1, 1, 1]}
    expected = run.model.predict(later)
    assert load_model(tmp_path / "model").predict(later).tolist() == expected.tolist()


@pytest.mark.parametrize("settings", [{"scale": "standard"}, {"hidden": ()}])
def test_numbers_remain_plain_with_a_scale_of_the_user_and_in_linear_models(settings, capfd):
    X, y = table(RANDOM.normal(size=24))
    hogbatch.train(X, y, **SETTINGS | settings)
    assert "values of numbers" not in capfd.readouterr().out


def choose_once(monkeypatch):
    """Let the first short runs prefer features of values, and later ones plain numbers."""
    losses = iter([[2.0, 1.0], [1.0, 2.0]])
    monkeypatch.setattr(better_data, "mean_errors", lambda *_: next(losses))


def test_a_resumed_run_and_a_report_have_the_features_of_the_run(main, tmp_path, monkeypatch):
    """Found: short runs with the settings that the run had found, and so with other results."""
    choose_once(monkeypatch)
    X, y = table(RANDOM.normal(size=24))
    path, run_dir = tmp_path / "a.csv", tmp_path / "run"
    np.savetxt(path, np.column_stack([*X.values(), y]), "%.6g", ",", header="h,s,y", comments="")
    run = hogbatch.train(path, run_dir=run_dir, members=1, checkpoint_seconds=60, **SETTINGS)
    assert main("report", run_dir).returncode == 0
    assert "not those of the run" not in (run_dir / "report.html").read_text()
    later = hogbatch.train(path, resume=run_dir, epochs=12)
    assert widths(later.model) == widths(run.model)


def test_the_second_run_of_refit_has_the_features_of_the_first(monkeypatch):
    choose_once(monkeypatch)
    X, y = table(RANDOM.normal(size=24))
    run = hogbatch.train(X, y, refit=True, quiet=True, **SETTINGS)
    plain = hogbatch.train(X, y, number_values="none", quiet=True, **SETTINGS)
    assert np.subtract(widths(run.model), widths(plain.model)).tolist() == [24, 0]
