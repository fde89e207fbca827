"""When the first lease is handed out."""

from tests.support.coordinator_stage import works


def test_training_starts_with_the_first_worker(stage):
    play = stage()
    play.hello("b")
    assert works(play.attach("a"))
    assert play.state.phase == "train"


def test_it_can_wait_for_more(stage):
    play = stage(start_with=2)
    assert not works(play.attach("a"))
    assert not works(play.hello("b")) and play.state.phase == "waiting"
    assert {key for key, _ in works(play.ready("b"))} == {"a", "b"}
    play.work_on()
    assert play.finish.status == "finished"


def test_a_worker_that_was_lost_on_the_way_is_not_waited_for(stage):
    play = stage(start_with=2)
    play.attach("a")
    play.hello("b")
    assert {key for key, _ in works(play.lose("b"))} == {"a"}


def test_one_that_never_comes_is_not_waited_for_for_ever(stage):
    play = stage(start_with=2, wait_for_workers=30.0)
    play.attach("a")
    assert not works(play.later(30.0))
    assert works(play.later(2.0))


def test_nobody_ready_is_no_start(stage):
    play = stage(start_with=1)
    play.hello("a")
    play.lose("a")
    play.hello("b")
    assert not works(play.shuffle()) and play.state.phase == "waiting"
