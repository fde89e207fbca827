"""The recipe of tables with categories: short runs, what they decide, and which runs have none."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import hogbatch
from hogbatch import HogbatchClassifier, HogbatchRegressor
from hogbatch.run import recipe

ROWS, PLACES = 2_600, 60
RANDOM = np.random.default_rng(0)
PLACE, X = RANDOM.integers(PLACES, size=ROWS), RANDOM.normal(size=ROWS).round(1)
NAMES = [f"p{number}" for number in PLACE]
TABLE = pd.DataFrame({"place": NAMES, "x": X})
NOISE = RANDOM.normal(size=ROWS)
Y = RANDOM.normal(size=PLACES)[PLACE] * X  # effects that multiply a number
QUIET = {"quiet": True, "deterministic": True, "test_fraction": 0.0, "members": 1}
NUMBERS = QUIET | {"loss": "squared"}


@pytest.fixture
def ratio(monkeypatch):
    """Set the ratios of the losses with "tabular" and "fast" on the folds, without short runs."""
    compared = []
    monkeypatch.setattr(recipe, "EPOCHS", 3)

    def choose(*values):
        def losses(cases, error, execute, folds):
            [fold] = folds
            compared.append(fold)
            return [1.0, values[fold]]

        monkeypatch.setattr(recipe, "mean_errors", losses)
        return compared

    return choose


def test_short_runs_choose_tabular_where_values_multiply_numbers(capfd):
    run = hogbatch.train(TABLE, Y, **NUMBERS | {"quiet": False})
    assert run.recipe == "tabular" and run.hidden == (256,)
    assert run.summary["epochs"] == recipe.EPOCHS
    out = capfd.readouterr().out
    assert "recipe: tabular, 40 epochs; short runs have a validation loss of" in out
    fast = hogbatch.train(TABLE, Y, **NUMBERS, recipe="fast")
    assert run.validation_loss < 0.8 * fast.validation_loss


def test_short_runs_keep_fast_where_nothing_is_gained():
    assert hogbatch.train(TABLE, NOISE, **NUMBERS).recipe == "fast"


@pytest.mark.parametrize(
    ("ratios", "chosen", "folds"),
    [((0.96, 0.5), "fast", [0]), ((0.5, 0.96), "fast", [0, 1]), ((0.5, 0.94), "tabular", [0, 1])],
)
def test_the_loss_must_be_clearly_lower_in_two_folds(ratio, ratios, chosen, folds):
    compared = ratio(*ratios)
    run = hogbatch.train(TABLE, Y > 0, **QUIET)
    assert run.recipe == chosen and compared == folds
    assert (run.summary["epochs"] == 3) == (chosen == "tabular")


@pytest.mark.parametrize(
    "settings",
    [
        {"recipe": "fast"},
        {"optimizer": "adagrad"},
        {"lr": 0.01},
        {"hidden": (8,)},
        {"target_loss": 0.1, "max_rows": 3_000},
        {"patience": 3},
        {"max_seconds": 9.0, "deterministic": False},
    ],
)
def test_nothing_is_compared_if_the_user_decides(ratio, settings):
    compared = ratio(0.1, 0.1)
    epochs = {} if "max_rows" in settings or "max_seconds" in settings else {"epochs": 1}
    run = hogbatch.train(TABLE, Y, **NUMBERS | settings | epochs)
    assert run.recipe == "fast" and not compared


def test_the_number_of_epochs_is_that_of_the_user(ratio):
    compared = ratio(0.1, 0.1)
    assert hogbatch.train(TABLE, Y, epochs=1, **NUMBERS).recipe == "fast" and not compared


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (TABLE[:2_200], Y[:2_200]),  # too few without the validation rows
        (TABLE.assign(place=[f"p{number % 4}" for number in PLACE]), Y),  # dense
        (sparse.csr_matrix(np.eye(PLACES)[PLACE]), Y),  # no table
        (TABLE.assign(words=["some words " + name for name in NAMES]), Y),
    ],
)
def test_nothing_is_compared_on_other_rows(ratio, rows, labels):
    compared = ratio(0.1, 0.1)
    text = {"text": ("words",)} if "words" in getattr(rows, "columns", ()) else {}
    hogbatch.train(rows, labels, **NUMBERS, **text)
    assert not compared


def test_estimators_choose_like_the_function(ratio):
    compared = ratio(0.5, 0.5)
    settings = {"members": 1, "random_state": 0}
    for kind, labels in ((HogbatchRegressor, Y), (HogbatchClassifier, Y > 0)):
        model = kind(**settings).fit(TABLE, labels)
        assert model.n_iter_ == 3
        model = kind(recipe="fast", **settings).fit(TABLE, labels)
        assert model.n_iter_ > 3
    assert len(compared) == 4


def test_the_choice_is_made_once_for_members_refit_and_resume(ratio, tmp_path):
    compared = ratio(0.5, 0.5)
    ensemble = hogbatch.train(TABLE, Y, **NUMBERS | {"members": 3})
    assert ensemble.recipe == "tabular" and len(ensemble.model.members) == 3
    again = hogbatch.train(TABLE, Y, refit=True, **NUMBERS | {"members": None})
    assert again.recipe == "tabular" and again.summary["epochs"] <= 3 and len(compared) == 4
    directory = str(tmp_path / "run")
    hogbatch.train(TABLE, Y, run_dir=directory, **NUMBERS)
    longer = hogbatch.train(TABLE, Y, resume=directory, epochs=5, quiet=True)
    assert longer.recipe == "tabular" and longer.summary["epochs"] == 5 and len(compared) == 6


def test_later_rows_are_not_compared(ratio, tmp_path):
    compared = ratio(0.5, 0.5)
    HogbatchRegressor(members=1).partial_fit(TABLE, Y)
    model = HogbatchRegressor(members=1, warm_start=True).fit(TABLE, Y)
    assert len(compared) == 2
    model.fit(TABLE, Y)
    run = hogbatch.train(TABLE, Y, **NUMBERS)
    run.save(tmp_path / "model")
    hogbatch.train(TABLE, Y, init=str(tmp_path / "model"), **NUMBERS | {"members": None})
    assert len(compared) == 4
