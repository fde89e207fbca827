from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

from benchmarks.peers.contract import Problem, Rows
from benchmarks.peers.pytorch_gpu import BATCHES, PEER
from benchmarks.peers.vowpal_wabbit import lines


@pytest.fixture
def signs():
    """A linear problem that any linear peer learns: the label is the sign of one feature."""
    random = np.random.default_rng(0)
    x = random.standard_normal((600, 5)).astype(np.float32)
    rows = Rows(csr_array(x), (x[:, 2] > 0).astype(np.float32))
    train, test = (Rows(rows.x[part], rows.y[part]) for part in (slice(500), slice(500, 600)))
    return Problem("logistic", (), 1, train, test)


def test_vowpal_wabbit_gets_labels_of_minus_one_and_one(signs):
    label, features = lines(signs.train, [0])[0].split(" | ")
    assert label == ("1" if signs.train.y[0] else "-1")
    assert [int(pair.split(":")[0]) for pair in features.split()] == [0, 1, 2, 3, 4]


def test_no_batch_of_the_grid_is_larger_than_the_set(signs):
    assert {each["batch"] for each in PEER.grid(signs)} == {64, 256}
    many = replace(signs, train=Rows(np.zeros((5000, 1), np.float32), np.zeros(5000, np.float32)))
    assert {each["batch"] for each in PEER.grid(many)} == set(BATCHES)
