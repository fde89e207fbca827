"""The programs of docs/tuning.md that search for settings in one process, with short trials."""

import math

import pytest

from tests.support.doc_programs import program, write_table


@pytest.fixture
def run_program(tmp_path, monkeypatch):
    """Runs a program in a directory with its data, and returns its variables."""
    write_table(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(package, smaller):
        variables = {}
        exec(compile(program(package, smaller), package, "exec"), variables)
        return variables

    return run


def test_optuna_ends_the_run_of_a_trial_that_it_prunes(run_program):
    optuna = pytest.importorskip("optuna", reason="Optuna is not installed; install optuna")
    worst_last = "\n".join(
        f'study.enqueue_trial({{"lr": {lr}, "hidden": "8"}})' for lr in (1e-2, 1e-2, 3e-4)
    )
    smaller = {
        '["256", "256,256", "512,512,512"]': '["8"]',
        '"epochs": 20': '"epochs": 4',
        "study.optimize": f"{worst_last}\nstudy.optimize",
        "n_trials=50": "n_trials=3",
    }
    found = run_program("optuna", smaller)
    first, _, last = found["study"].trials
    states = optuna.trial.TrialState
    assert (first.state, last.state) == (states.COMPLETE, states.PRUNED)
    assert first.value == min(first.intermediate_values.values())
    assert last.last_step < first.last_step, "its run has ended early"
    assert found["run"].test_loss < math.log(3), "the model of the best settings has learned"


def test_halving_search_trains_the_best_candidates_for_more_epochs(run_program):
    smaller = {
        "[(128,), (256, 256)]": "[(8,), (16,)]",
        "cv=3": "cv=2",
        '"min_resources": 5, "max_resources": 45, "n_candidates": 27': '"min_resources": 1, '
        '"max_resources": 3, "n_candidates": 3',
    }
    found = run_program("sklearn", smaller)
    search = found["search"]
    assert list(search.cv_results_["n_resources"]) == [1, 1, 1, 3]
    assert search.best_estimator_.n_iter_ == 3
    assert search.score(found["X_test"], found["y_test"]) > -math.log(3), "it has learned"
