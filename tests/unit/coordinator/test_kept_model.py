"""The kept model is evaluated on the test rows once, when the end of the run is decided."""

import pytest

from hogbatch.coordinator.commands import Finish, Keep, Report, Send, ShowKept
from hogbatch.events import event as events
from hogbatch.wire.messages import Stop
from tests.support.coordinator_stage import of_kind, records, works

TESTING = 600  # rows


@pytest.fixture
def play(stage):
    """Two workers, with validation and test rows, in a run of one epoch."""
    return stage("a", "b", train_rows=400, validation_rows=300, test_rows=TESTING)


def until_test(play):
    """Let the run go on until test rows are handed out; return the commands of that moment."""
    while play.state.phase != "test":
        commands = play.done(next(key for key, held in play.work.items() if held))
    return commands


def end_test(play, **fields):
    """Let the workers do the rest; return all commands."""
    commands = []
    while play.finish is None:
        commands += play.done(next(key for key, held in play.work.items() if held), **fields)
    return commands


def test_the_kept_model_is_in_place_while_test_rows_are_evaluated(play):
    commands = until_test(play)
    assert [type(each) for each in commands if isinstance(each, Report | Keep | ShowKept)] == [
        *(Report, Keep, ShowKept)
    ]
    assert records(commands, events.EvaluationBegins)[-1].fields == {"rows": TESTING, "set": "test"}
    assert {work.task for _, work in works(commands)} == {"test"}
    seconds = play.state.totals(play.now).seconds
    commands = end_test(play, loss=1.0, metric_sums=(2.0,))
    assert commands[-4:-1] == [ShowKept(False), Send("a", Stop()), Send("b", Stop())]
    assert commands[-1] == Finish("finished")
    (tested,) = records(commands, events.Tested)
    assert 0 < tested.loss < 1 and tested.values["accuracy"] == pytest.approx(2 * tested.loss)
    assert play.state.totals(play.now).seconds == seconds, "this is no training time"
    assert len(of_kind(play.said, Report)) == 1, "the test rows choose nothing"


def test_a_test_loss_that_is_not_finite_is_recorded_as_such(play):
    until_test(play)
    (tested,) = records(end_test(play, skipped=1), events.Tested)
    assert (tested.loss, tested.values) == (None, {})
    assert play.finish == Finish("finished")


def test_an_interrupted_run_evaluates_the_test_rows(play):
    play.interrupt()
    commands = until_test(play)
    assert of_kind(commands, Keep) == [Keep(None)] and not of_kind(play.said, Report)
    play.interrupt()  # as the loop repeats it
    assert records(end_test(play), events.Tested)
    assert play.finish == Finish("stopped", "interrupted")


@pytest.mark.parametrize("interrupted_before", [True, False])
def test_an_interrupt_bounds_the_time_of_the_test(play, interrupted_before):
    if interrupted_before:
        play.interrupt()
    until_test(play)
    play.interrupt()
    play.later(3.0)
    assert play.finish is None
    assert ShowKept(False) in play.later(1.5)
    ended = Finish("stopped", "interrupted") if interrupted_before else Finish("finished")
    assert play.finish == ended and not records(play.said, events.Tested)


def test_another_worker_evaluates_the_rows_of_one_that_is_lost(play):
    until_test(play)
    play.lose("a")
    play.lose("b")
    play.attach("c")
    assert {work.task for work in play.work["c"]} == {"test"}
    assert records(end_test(play), events.Tested)


def test_a_run_whose_workers_are_all_lost_then_keeps_its_end(play):
    until_test(play)
    play.lose("a")
    play.lose("b")
    play.later(60.5)
    assert play.finish == Finish("finished") and not records(play.said, events.Tested)


def test_test_rows_are_the_only_ones_that_are_evaluated_without_validation_rows(stage):
    play = stage("a", train_rows=100, test_rows=50)
    commands = until_test(play)
    assert (
        of_kind(commands, Keep) and of_kind(commands, Report)[0].evaluation.validation_loss is None
    )
    assert records(end_test(play), events.Tested)


def test_a_model_that_was_trained_on_no_row_is_not_tested(stage):
    play = stage("a", train_rows=100, test_rows=50, max_seconds=1.0)
    play.later(1.0)
    play.lose("a")
    play.attach("b")
    assert play.finish == Finish("time") and not of_kind(play.said, ShowKept)
