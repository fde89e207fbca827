import json
import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from benchmarks import time_to_loss
from benchmarks.common.hogbatch_run import loss_curve
from benchmarks.common.search import BestSetting, TunedSettings
from benchmarks.peers import ON_CPU, peer
from benchmarks.peers.contract import Problem, Rows
from benchmarks.time_to_loss import (
    TASKS,
    labelled,
    ratio,
    table,
)

WIDTHS = {  # features, outputs, loss; covtype alone is dense
    "covtype": (54, 7, "softmax"),
    "w8a": (300, 1, "logistic"),
    "delicious": (500, 983, "multilabel"),
    "imdb": (44_798, 1, "logistic"),
    "imdb-linear": (44_798, 1, "logistic"),
}
OURS_IN_TUNING = 9  # settings among which hogbatch's own defaults were chosen


def run(which, name, seconds, seed=0):
    return {"set": which, "name": name, "seed": seed, "seconds": seconds}


def problem_like(which):
    """Of the shape of the set, with one row."""
    features, outputs, loss = WIDTHS[which]
    x = np.zeros((1, features), np.float32)
    rows = Rows(x if which == "covtype" else csr_array(x), np.zeros(1, np.float32))
    return Problem(loss, TASKS[which].hidden, outputs, rows, rows)


def grids():
    for which in TASKS:
        for name in ON_CPU:
            if grid := peer(name).grid(problem_like(which)):
                yield which, name, grid


@pytest.mark.parametrize(
    ("seconds", "cell"),
    [
        ({"hogbatch": 1.0, "pytorch": 8.0, "tensorflow": 4.0}, "0.25"),
        ({"hogbatch": 6.0, "pytorch": math.inf}, "< 0.10"),
        ({"hogbatch": 6.0}, "-"),
        ({"hogbatch": math.inf, "pytorch": 1.0}, "-"),
    ],
)
def test_the_ratio_is_to_the_best_peer_and_a_bound_if_none_arrived(seconds, cell):
    assert ratio(seconds, 60.0) == cell


def test_the_table_has_a_row_a_set_and_a_column_a_peer():
    runs = [run("w8a", "hogbatch", 1.0), run("w8a", "pytorch", 4.0), run("imdb", "hogbatch", 0.5)]
    runs += [run("imdb", "sklearn-mlp", seconds) for seconds in (None, None, 2.0)]
    assert table(runs, 60.0).splitlines() == [
        "| set | test loss | hogbatch | pytorch | sklearn-mlp | hogbatch / best peer |",
        "|---|---|---|---|---|---|",
        "| w8a | 0.05 | 1 s | 4 s | - | 0.25 |",
        "| imdb | 0.28 | 0.5 s | - | > 60 s | < 0.01 |",
    ]


def test_the_time_of_a_run_is_that_of_the_first_evaluation_at_the_target():
    done = labelled({"curve": [[0.5, 0.06], [1.0, 0.05], [2.0, 0.04]]}, "w8a", "pytorch", 3)
    assert done["seconds"] == 1.0
    history = [{"seconds": 1.0, "test_loss": None}, {"seconds": 2.0, "test_loss": 0.3}]
    assert loss_curve(history) == [(2.0, 0.3)], "a loss that is not finite is a gap"


def test_hogbatch_gets_data_and_network_and_nothing_else(tmp_path):
    assert TASKS["covtype"].flags(tmp_path) == [
        str(tmp_path / "covtype.csv.gz"),
        *("--hidden", "512,512,512"),
    ]
    assert TASKS["imdb-linear"].flags(tmp_path)[1:3] == ["--hidden", ""]


def test_each_grid_is_at_least_as_large_as_ours_and_has_nothing_twice():
    for which, name, grid in grids():
        assert len(grid) >= OURS_IN_TUNING, (which, name)
        assert len({json.dumps(setting) for setting in grid}) == len(grid), (which, name)
    assert {which for which, _, _ in grids()} == set(TASKS)
    assert [peer(name).name for name in ON_CPU] == list(ON_CPU)


def test_tuned_settings_come_out_of_the_grids():
    tuned = time_to_loss.SETTINGS.read()
    for which, name, grid in grids():
        assert tuned[which][name]["setting"] in grid, (which, name)


def test_a_setting_found_replaces_the_one_before_and_no_other(tmp_path):
    settings = TunedSettings(tmp_path / "tuned.json")
    for name, rate in (("pytorch", 1.0), ("tensorflow", 2.0), ("pytorch", 3.0)):
        best = BestSetting(0.05, {"lr": rate}, [(0.0, 0.7), (rate, 0.04)])
        settings.keep("w8a", name, best.entry(grid_size=9))
    seconds = {name: entry["seconds"] for name, entry in settings.read()["w8a"].items()}
    assert seconds == {"pytorch": 3.0, "tensorflow": 2.0}
