import json
import sys
from dataclasses import replace

from benchmarks.common.peer_process import rounded
from benchmarks.peers import peer
from benchmarks.peers.vowpal_wabbit import lines


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
