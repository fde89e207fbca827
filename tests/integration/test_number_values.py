"""Whole numbers whose values have features of their own (`run.better_data`)."""

import numpy as np
import pytest

import hogbatch
from hogbatch.model.file import load_model

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
