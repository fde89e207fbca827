"""What the benchmark of tables says of its results, and how it measures predictions."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from benchmarks.tables import __main__ as program
from benchmarks.tables.cases import CHOOSING, REPORTED, SMALL
from benchmarks.tables.summary import shifted_mean, tables, worse


def results(name="titanic", **errors):
    """Results of models with these errors on the splits of a set, each 1 s."""
    return [
        {"set": name, "model": model, "seed": seed, "seconds": 1.0, "error": error}
        for model, by_split in errors.items()
        for seed, error in enumerate(by_split)
    ]


def test_the_halves_have_no_set_in_common_and_about_the_same_share_of_numbers():
    assert not CHOOSING.keys() & REPORTED.keys()
    assert set(SMALL) <= CHOOSING.keys()
    numbers = [sum(not case.classes for case in half.values()) for half in (CHOOSING, REPORTED)]
    assert abs(len(CHOOSING) - len(REPORTED)) <= 5 and numbers[0] == numbers[1]


def test_a_model_is_compared_with_the_better_one_of_the_simple_models():
    found = results(
        linear=[0.20, 0.22, 0.24], mlp=[0.3, 0.3, 0.3], a=[0.21, 0.23, 0.26], b=[0.25, 0.2, 0.23]
    )
    assert [worse(found, "titanic", model) for model in ("a", "b", "mlp")] == [True, False, False]
    assert "| titanic | error | 0.2200 (1 s) | 0.3000 (1 s) | 0.2333\\* (1 s) |" in tables(found)


def test_means_are_of_the_sets_that_all_models_have():
    found = [*results(a=[0.2], b=[0.3]), *results("cancer", a=[0.01])]
    assert "| mean of 1 | classes | 0.2000 | 0.3000 |" in tables(found)
    assert shifted_mean([0.01, 0.07]) == pytest.approx(0.03)


def test_errors_of_probabilities_and_of_numbers():
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.3, 0.7]])
    found = program.errors(np.array(["a", "b"]), np.array(["a", "a", "b"]), probabilities)
    assert found == pytest.approx(
        {"error": 1 / 3, "log_loss": -np.log(0.9 * 0.4 * 0.7) / 3, "precision": 0}
    )
    numbers = program.errors(None, np.array([0.0, 2.0]), np.array([[1.0], [1.0]]))
    assert numbers == {"deviation": 1.0}


def test_settings_are_values_of_python_or_text():
    assert program.read_settings("epochs=100 hidden=(64,) scale=quantile") == {
        "epochs": 100,
        "hidden": (64,),
        "scale": "quantile",
    }
