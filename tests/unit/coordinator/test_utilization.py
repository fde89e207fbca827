"""The utilization of workers: in each evaluation, and over the whole run."""

from dataclasses import asdict

import msgspec
import pytest

from hogbatch.coordinator.commands import Report
from hogbatch.coordinator.saved_state import SavedState, save
from hogbatch.coordinator.state import Coordinator
from tests.support.coordinator_stage import of_kind
from tests.unit.coordinator.test_parking import Parks

PROFILE = ((1, 0.01), (10, 0.05))  # 200 rows/s at the peak
SLOW = 0.02  # seconds for a row in training


@pytest.fixture
def play(stage):
    """A run that is evaluated after each epoch of 60 rows; leases are single batches of 10 rows."""
    play = stage(train_rows=60, epochs=100, by_epoch=True, lease_seconds=1e-9)
    play.seconds_per_row = SLOW
    return play


def train(play, *keys, seconds=1.0):
    """Each of the workers `keys` finishes a lease within `seconds`."""
    play.later(seconds / 2)
    for key in keys:
        play.done(key)
    play.later(seconds / 2)


def evaluations(play):
    """The evaluations so far."""
    return [report.evaluation for report in of_kind(play.said, Report)]


def finish_epoch(play):
    """Finish all leases up to the next evaluation, in no time; return the evaluation."""
    before = len(evaluations(play))
    while len(evaluations(play)) == before:
        play.shuffle()
        play.done(next(key for key, held in play.work.items() if held))
    return evaluations(play)[-1]


def total(play, name):
    """The record of the worker `name`."""
    return next(w for w in play.state.totals(play.now).workers if w.name == name)


def test_an_evaluation_has_the_utilization_since_the_last_one(play):
    play.attach("a", profile=PROFILE)
    play.attach("g", device="gpu", profile=((100, 0.25),))
    train(play, seconds=0.5)
    first = finish_epoch(play)
    train(play, seconds=2.0)
    second = finish_epoch(play)
    for evaluation, seconds in ((first, 0.5), (second, 2.0)):
        by_rows = {"cpu-0": 200.0, "gpu-0": 400.0}
        trained = {name: evaluation.utilization[name] * peak for name, peak in by_rows.items()}
        assert sum(trained.values()) == pytest.approx(60 / seconds)
    assert evaluations(play) == [first, second]
    for key, name, peak in (("a", "cpu-0", 200.0), ("g", "gpu-0", 400.0)):
        rows = play.state.workers[key].rows
        assert total(play, name).utilization == pytest.approx(rows / 2.5 / peak)


def test_a_worker_counts_from_when_it_is_ready_until_it_leaves(play):
    play.attach("a", profile=PROFILE)
    train(play, seconds=0.5)
    play.attach("b", profile=PROFILE)
    train(play, "b", seconds=0.5)
    play.goodbye("b")
    train(play, seconds=0.5)
    expected = {"cpu-0": 50 / 1.5 / 200, "cpu-1": 10 / 0.5 / 200}
    assert finish_epoch(play).utilization == pytest.approx(expected)
    train(play)
    assert finish_epoch(play).utilization.keys() == {"cpu-0"}, "it has left before"
    assert total(play, "cpu-1").utilization == pytest.approx(10 / 0.5 / 200)


def test_a_parked_worker_has_zero_while_it_is_parked(stage):
    play = stage(policy=Parks(), train_rows=60, epochs=100, by_epoch=True, gpu=(10, 10))
    play.seconds_per_row = SLOW
    play.attach("a", profile=PROFILE)
    train(play, "a", seconds=1.0)
    play.attach("g", device="gpu", profile=((10, 0.01),))  # parks the CPU worker
    finish_epoch(play)  # with the leases that the CPU worker held
    rows = play.state.workers["a"].rows
    train(play, seconds=3.0)
    assert finish_epoch(play).utilization["cpu-0"] == 0.0
    assert total(play, "cpu-0").utilization == pytest.approx(rows / 4.0 / 200)


def test_a_resumed_run_continues_the_totals(play):
    play.attach("a", profile=PROFILE)
    train(play, seconds=1.0)
    finish_epoch(play)
    train(play, "a", seconds=0.5)
    saved = msgspec.convert(asdict(save(play.state, play.now)), SavedState)
    play.state = Coordinator.resumed(play.state.plan, play.state.policy, saved)
    play.work.clear()
    play._note(play.state.begin(play.now))
    play.attach("b", profile=PROFILE)
    train(play, seconds=2.0)
    assert finish_epoch(play).utilization == pytest.approx({"cpu-1": 50 / 2.0 / 200})
    train(play)
    finish_epoch(play)
    assert total(play, "cpu-0").utilization == pytest.approx(70 / 1.5 / 200)
    assert total(play, "cpu-1").utilization == pytest.approx(110 / 3.0 / 200)


def test_a_worker_that_is_faster_in_training_than_before_has_a_higher_peak(play):
    play.attach("a", profile=PROFILE)
    for row_seconds, speed, utilization in (
        (0.002, 400.0, 0.8),  # computes 500 rows a second, of which 400 are trained
        (SLOW, 150.0, 0.3),  # slower than before
        (0.001, 1000.0, 1.0),
    ):
        play.seconds_per_row = row_seconds
        train(play, seconds=60 / speed)
        assert finish_epoch(play).utilization["cpu-0"] == pytest.approx(utilization)
    total_seconds = 60 / 400 + 60 / 150 + 60 / 1000
    assert total(play, "cpu-0").utilization == pytest.approx(180 / total_seconds / 1000)


def test_an_interval_that_is_much_shorter_than_the_one_before_measures_nothing(play):
    play.attach("a", profile=PROFILE)
    train(play, seconds=2.0)
    assert finish_epoch(play).utilization["cpu-0"] == pytest.approx(60 / 2.0 / 200)
    for found in ({}, {"cpu-0": pytest.approx(60 / 0.1 / 200)}):  # the second one is as usual
        train(play, seconds=0.1)
        assert finish_epoch(play).utilization == found
