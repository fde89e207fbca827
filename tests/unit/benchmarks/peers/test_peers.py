import json
import sys
from dataclasses import replace

import pytest

from benchmarks.common.job import WITHIN_S
from benchmarks.common.peer_process import PeerProcess, rounded
from benchmarks.peers import peer
from benchmarks.peers.contract import Stopwatch, reached, write_problem
from benchmarks.peers.vowpal_wabbit import lines

NETWORKS = {
    "sklearn-sgd": ("sklearn", {"schedule": "constant", "lr": 1.0, "alpha": 0.0}),
    "vowpal-wabbit": ("vowpalwabbit", {"update": "", "lr": 0.5, "power": 0.5}),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_linear_peer_learns_and_stops_at_the_target(name, signs):
    package, setting = NETWORKS[name]
    pytest.importorskip(package)
    watch = Stopwatch(target=0.2, limit_s=WITHIN_S)
    peer(name).train(signs, setting, 0, watch)
    assert watch.curve[0] == (0.0, pytest.approx(0.6931, abs=1e-3))
    assert reached(watch.curve, 0.2) == watch.curve[-1][0] > 0
    assert watch.rows > 0


@pytest.mark.slow
def test_a_peer_in_its_own_process_answers_with_its_curve(signs, tmp_path):
    write_problem(signs, tmp_path)
    with PeerProcess("sklearn-sgd", tmp_path, threads=1) as process:
        answer = process.train(NETWORKS["sklearn-sgd"][1], 0, Stopwatch(0.2, WITHIN_S))
    assert answer["curve"][-1][1] <= 0.2
    assert answer["rows"] > 0


@pytest.mark.slow
def test_a_peer_whose_process_ends_is_an_error(signs, tmp_path):
    write_problem(signs, tmp_path)
    wrong = {"schedule": "no such", "lr": 1.0, "alpha": 0.0}
    with (
        PeerProcess("sklearn-sgd", tmp_path, threads=1) as process,
        pytest.raises(RuntimeError, match=r"sklearn-sgd exited while training .*no such"),
    ):
        process.train(wrong, 0, Stopwatch(0.2, WITHIN_S))


def test_vowpal_wabbit_gets_labels_of_minus_one_and_one(signs):
    label, features = lines(signs.train, [0])[0].split(" | ")
    assert label == ("1" if signs.train.y[0] else "-1")
    assert [int(pair.split(":")[0]) for pair in features.split()] == [0, 1, 2, 3, 4]


def test_curves_are_rounded_for_the_file():
    assert json.dumps(rounded([(1.23456789, 61.498765)])) == "[[1.2346, 61.499]]"


def test_asking_for_a_grid_imports_no_framework(signs):
    before = set(sys.modules)
    for name in ("pytorch", "pytorch-hogwild", "tensorflow"):
        assert peer(name).grid(replace(signs, hidden=(4,)))
    assert not {"torch", "tensorflow"} & (set(sys.modules) - before)
