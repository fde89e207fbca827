import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

from benchmarks.peers.contract import (
    Problem,
    Rows,
    Stopwatch,
    accuracy,
    hopeless,
    loss_of,
    mean_loss,
    reached,
    read_problem,
    write_problem,
)
from hogbatch.data.batch import Examples, csr_inputs, multi_labels

SCORES = np.array([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]], np.float32)


@pytest.fixture
def clock():
    """Stands still but for what it is told."""
    return SimpleNamespace(now=100.0)


def watch_of(clock, losses, took=0.0):
    """A started watch whose evaluations give `losses` in turn and take `took` seconds."""
    found = iter(losses)

    def measure():
        clock.now += took
        return next(found)

    watch = Stopwatch(0.5, 10.0, clock=lambda: clock.now)
    watch.start(measure)
    return watch, measure


def test_softmax_loss_is_the_negative_log_likelihood_of_the_label():
    fractions = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)
    expected = -np.log(fractions[[0, 1], [2, 1]]).mean()
    assert mean_loss("softmax", SCORES, np.array([2, 1], np.float32)) == pytest.approx(expected)


def test_multilabel_loss_is_a_sum_over_labels_and_a_mean_over_rows():
    y = np.array([[1, 0, 1], [0, 1, 0]], np.float32)
    p = 1 / (1 + np.exp(-SCORES))
    expected = -(y * np.log(p) + (1 - y) * np.log(1 - p)).sum() / 2
    assert mean_loss("multilabel", SCORES, csr_array(y)) == pytest.approx(expected)


def test_loss_in_blocks_weighs_rows_alike():
    rows = 5000  # more than a block, and no multiple of one
    scores = np.random.default_rng(0).standard_normal((rows, 1)).astype(np.float32)
    part = Rows(np.zeros((rows, 2), np.float32), (scores[:, 0] > 0.3).astype(np.float32))
    problem = Problem("logistic", (), 1, part, part)
    whole = mean_loss("logistic", scores, part.y)
    assert loss_of(problem, lambda block: scores[block]) == pytest.approx(whole)


def test_examples_become_scipy_rows():
    inputs = csr_inputs(np.array([0, 1, 3]), np.array([1, 0, 2], np.int32), np.ones(3, np.float32))
    labels = multi_labels(np.array([0, 2, 2]), np.array([0, 3], np.int32))
    rows = Rows.of(Examples(inputs, labels, 4), outputs=4)
    assert rows.x.toarray().tolist() == [[0, 1, 0, 0], [1, 0, 1, 0]]
    assert rows.y.toarray().tolist() == [[1, 0, 0, 1], [0, 0, 0, 0]]
    assert rows.x.indptr.dtype == np.int32  # scikit-learn takes no other


def test_a_problem_is_read_as_it_was_written(tmp_path):
    dense = Rows(np.eye(3, dtype=np.float32), csr_array(np.eye(3, dtype=np.float32)))
    sparse = Rows(csr_array(np.eye(3, dtype=np.float32)), np.arange(3, dtype=np.float32))
    write_problem(Problem("softmax", (8, 4), 3, dense, sparse), tmp_path)
    problem = read_problem(tmp_path)
    assert (problem.loss, problem.hidden, problem.outputs) == ("softmax", (8, 4), 3)
    for found in (problem.train.x, problem.train.y.toarray(), problem.test.x.toarray()):
        assert found.tolist() == np.eye(3).tolist()
    assert problem.test.y.tolist() == [0, 1, 2]


def test_seconds_leave_evaluations_out(clock):
    watch, measure = watch_of(clock, [0.9, 0.8, 0.7], took=50.0)
    clock.now += 2.0
    assert not watch.over(measure)
    clock.now += 3.0
    assert not watch.over(measure)
    assert watch.curve == [(0.0, 0.9), (2.0, 0.8), (5.0, 0.7)]


@pytest.mark.parametrize(
    ("seconds", "loss", "ends"), [(1.0, 0.5, True), (10.0, 0.8, True), (1.0, 0.8, False)]
)
def test_a_run_ends_at_the_target_or_the_limit(clock, seconds, loss, ends):
    watch, measure = watch_of(clock, [0.9, loss])
    clock.now += seconds
    assert watch.due and watch.over(measure) == ends
    assert reached(watch.curve, 0.5) == (seconds if loss == 0.5 else None)


def test_a_run_whose_loss_is_not_finite_ends_and_keeps_a_finite_curve(clock):
    watch, measure = watch_of(clock, [0.9, math.nan])
    clock.now += 1.0
    assert watch.over(measure)
    assert watch.curve == [(0.0, 0.9)]


@pytest.mark.parametrize(("took", "pause"), [(2.0, 2.0), (0.01, 0.05)])
def test_training_takes_as_long_as_the_evaluation_before_or_a_twentieth(clock, took, pause):
    watch, measure = watch_of(clock, [0.9, 0.8], took=took)
    clock.now += 1.0
    watch.over(measure)
    clock.now += 0.9 * pause
    assert not watch.due
    clock.now += 0.2 * pause
    assert watch.due


RIVAL = [(0.0, 1.0), (2.0, 0.8), (6.0, 0.6), (10.0, 0.5)]


@pytest.mark.parametrize(
    ("curve", "rival", "expected"),
    [
        ([(0.0, 1.0), (6.0, 0.81)], RIVAL, True),  # far behind
        ([(0.0, 1.0), (6.0, 0.79)], RIVAL, False),  # somewhat behind
        ([(0.0, 5.0), (4.0, 5.0)], RIVAL, False),  # at its beginning
        ([(0.0, 1.0), (5.0, 0.7), (6.0, 3.0)], RIVAL, False),  # has swung up
        ([(0.0, 1.0), (99.0, 5.0)], [], False),  # without a rival
    ],
)
def test_a_run_far_behind_its_rival_is_hopeless(curve, rival, expected):
    assert hopeless(curve, rival) == expected


def test_accuracy_counts_rows_whose_best_label_is_one_of_theirs():
    y = csr_array(np.array([[1, 1, 0], [0, 0, 0], [0, 0, 1]], np.float32))
    rows = Rows(np.zeros((3, 1), np.float32), y)
    problem = Problem("multilabel-softmax", (2,), 3, rows, rows)
    assert accuracy(problem, lambda rows: np.array([1, 0, 2])) == pytest.approx(2 / 3)
