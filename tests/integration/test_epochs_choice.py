"""The number of epochs on many dense rows: short runs, what they decide, which runs have none."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import hogbatch
from hogbatch import HogbatchRegressor
from hogbatch.run import recipe

ROWS = 2_600
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, 3)).astype(np.float32)
Y, NOISE = X[:, 0] * X[:, 1], RANDOM.normal(size=ROWS)
QUIET = {"quiet": True, "deterministic": True, "test_fraction": 0.0, "members": 1}
NUMBERS = QUIET | {"loss": "squared", "hidden": (32,)}


@pytest.fixture(autouse=True)
def _few_rows_are_many(monkeypatch):
    monkeypatch.setattr(recipe, "SMALL_ROWS", 2_000)


@pytest.fixture
def best(monkeypatch):
    """Set the epochs that are best in short runs, without them; returns the settings of these."""
    given = []

    def choose(epochs):
        def errors(cases, *_):
            given.append(cases[0][0])
            return [epochs]

        monkeypatch.setattr(recipe, "mean_errors", errors)
        return given

    return choose


@pytest.mark.slow
def test_labels_of_noise_have_fewer_epochs_than_others(capfd):
    few = hogbatch.train(X, NOISE, **NUMBERS).summary["epochs"]
    many = hogbatch.train(X, Y, **NUMBERS | {"quiet": False}).summary["epochs"]
    assert few < 10 and 15 < many <= recipe.SHORT_EPOCHS
    assert f"epochs: {many:.0f}, by the validation losses of short" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("losses", "epochs"),
    [((0.7, None, 0.505, 0.502, 0.5, 0.6), 1.5), ((0, -1, -1.995, -2), 1.0), ((None, None), 0.0)],
)
def test_a_loss_near_the_lowest_one_is_enough(losses, epochs):
    history = [{"epochs": n / 2, "validation_loss": loss} for n, loss in enumerate(losses)]
    run: Any = SimpleNamespace(summary={"history": history})
    assert recipe._epochs(run) == epochs


@pytest.mark.parametrize(("mean", "epochs"), [(0.2, 1), (1.6, 2), (np.inf, 20)])
def test_epochs_are_rounded_and_at_least_one(best, mean, epochs):
    given = best(mean)  # infinite: a short run has diverged
    assert hogbatch.train(X, Y, **NUMBERS).summary["epochs"] == epochs
    (settings,) = given
    assert (settings.epochs, settings.recipe, settings.hidden) == (20, "tabular", (32,))


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 1},
        {"max_rows": 3_000},
        {"max_rows": 3_000, "target_loss": 0.1},
        {"max_seconds": 0.1, "deterministic": False},
        {"patience": 1},
        {"recipe": "fast"},
        {"hidden": ()},
        {"schedule": "constant"},
    ],
)
def test_nothing_is_chosen_if_the_user_decides(best, settings):
    given = best(2)
    hogbatch.train(X, Y, **NUMBERS | settings)
    assert not given


@pytest.mark.parametrize("rows", [X[:2_400], sparse.csr_matrix(X)])  # 480 are validation rows
def test_nothing_is_chosen_on_fewer_or_sparse_rows(best, rows):
    given = best(2)
    hogbatch.train(rows, Y[: rows.shape[0]], **NUMBERS, recipe="tabular")
    assert not given


@pytest.mark.parametrize(("mean", "epochs"), [(0.1, 2), (3, 6), (15, 20)])
def test_more_rows_than_short_runs_have_more_epochs(best, monkeypatch, mean, epochs):
    best(mean)
    monkeypatch.setattr(recipe, "MOST_ROWS", ROWS / 16)  # the fourth root is 2
    run = hogbatch.train(X, Y, **NUMBERS | {"validation_fraction": 0.0})
    assert run.summary["epochs"] == epochs


def test_epochs_are_chosen_once_for_members_refit_and_resume_and_for_each_fit(best, tmp_path):
    given = best(2)
    ensemble = hogbatch.train(X, Y, **NUMBERS | {"members": 3, "run_dir": str(tmp_path)})
    assert ensemble.summary["epochs"] == 2 and len(ensemble.model.members) == 3
    hogbatch.train(X, Y, refit=True, **NUMBERS | {"members": None})
    assert len(given) == 2
    again = hogbatch.train(X, Y, resume=str(tmp_path), epochs=3, quiet=True)
    assert again.summary["epochs"] == 3 and len(given) == 2
    model = HogbatchRegressor(hidden=(32,), members=1, warm_start=True).fit(X, Y)
    assert model.n_iter_ == 2 and len(given) == 3
    model.partial_fit(X, Y)
    assert model.n_iter_ == 3 and len(given) == 3
    assert model.fit(X, Y).n_iter_ == 5 and len(given) == 4
