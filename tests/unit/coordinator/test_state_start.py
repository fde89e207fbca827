"""The start of training."""

import pytest

from tests.support.coordinator_stage import works


@pytest.mark.parametrize("late", [False, True])
def test_the_first_worker_waits_a_moment_for_one_that_has_joined(stage, late):
    play = stage()
    play.hello("b")
    assert not works(play.attach("a"))
    commands = play.later(0.1) if late else play.ready("b")
    assert {key for key, _ in works(commands)} == ({"a"} if late else {"a", "b"})


def test_training_can_wait_for_more_workers(stage):
    play = stage(start_with=2)
    assert not works(play.attach("a"))
    assert not works(play.hello("b")) and play.state.phase == "waiting"
    assert {key for key, _ in works(play.ready("b"))} == {"a", "b"}
    play.work_on()
    assert play.finish.status == "finished"


def test_training_does_not_wait_for_a_worker_that_was_lost(stage):
    play = stage("a", start_with=2)
    play.hello("b")
    assert {key for key, _ in works(play.lose("b"))} == {"a"}


def test_training_does_not_wait_forever_for_missing_workers(stage):
    play = stage("a", start_with=2, wait_for_workers=30.0)
    assert not works(play.later(30.0))
    assert works(play.later(2.0))


def test_training_does_not_start_without_a_ready_worker(stage):
    play = stage(start_with=1)
    play.hello("a")
    play.lose("a")
    play.hello("b")
    assert not works(play.shuffle()) and play.state.phase == "waiting"
