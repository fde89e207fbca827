"""Evaluations, the model that is kept, and the end of a run."""

import pytest

from hogbatch.coordinator.commands import Finish, Keep, Measure, Report, Send, ShowMean
from hogbatch.coordinator.saved_state import save
from hogbatch.coordinator.state import Coordinator
from hogbatch.events.event import EpochEnded, LeaseDone, Tested as FinalResult
from hogbatch.wire.messages import Stop
from tests.support.coordinator_stage import is_send, of_kind, records, works


def begin_evaluation(play):
    """Train until the next evaluation begins; return the commands of that moment."""
    play.shuffle()
    play.later(1.0)
    while play.state.phase != "evaluate":
        commands = play.done(next(key for key, held in play.work.items() if held))
    return commands


def until_evaluation(play):
    """`begin_evaluation`; returns its first leases."""
    return works(begin_evaluation(play))


def end_evaluation(play, loss=0.5, accuracy=0.5):
    """Let the workers evaluate the rest of the validation rows; return the commands."""
    commands = []
    while play.state.phase == "evaluate":
        key = next(key for key, held in play.work.items() if held)
        rows = play.work[key][0].stop - play.work[key][0].start
        commands += play.done(key, loss=loss * rows, metric_sums=(accuracy * rows,))
    return commands


def evaluate(play, loss):
    """One round of training, then an evaluation with the loss `loss`; returns its commands."""
    until_evaluation(play)
    return end_evaluation(play, loss)


@pytest.fixture
def tested(stage):
    """Makes a stage with validation rows and an evaluation every second."""

    def make(**plan):
        changes = {
            "train_rows": 100_000,
            "validation_rows": 2000,
            "eval_seconds": 1.0,
            "epochs": None,
        }
        return stage("a", "b", **{**changes, **plan})

    return make


def test_nothing_is_handed_out_in_drain_until_the_last_lease_is_back(tested):
    play = tested()
    play.later(1.0)
    assert play.state.phase == "drain"
    assert all(works(play.done(key)) == [] for key in ("a", "a", "b"))
    assert {work.task for _, work in works(play.done("b"))} == {"validation"}
    assert not play.state.epochs.rows.held


def test_the_training_clock_stops_during_an_evaluation(tested):
    play = tested()
    until_evaluation(play)
    seconds = play.state.totals(play.now).seconds
    play.later(10.0)
    assert play.state.phase == "evaluate"
    assert play.state.totals(play.now).seconds == seconds
    (report,) = of_kind(end_evaluation(play), Report)
    assert report.evaluation.seconds == seconds
    play.later(0.5)
    assert play.state.totals(play.now).seconds == pytest.approx(seconds + 0.5)


def until_measured(play):
    """Let the workers evaluate rows until metrics are computed; return the command."""
    while not (commands := of_kind(play.said, Measure)):
        play.shuffle()
        play.later(0.1)
        for key in [key for key, held in play.work.items() if held]:
            play.done(key, metric_sums=(0.0,))
    play.said.clear()
    return commands


def test_models_are_compared_by_a_metric_that_is_computed_from_scores(tested):
    play, kept = tested(metric="auc", keeps_scores=True), []
    for auc in (0.7, 0.9, 0.8):
        assert until_measured(play) == [Measure("validation", "auc")]
        play.later(1.0)
        assert play.state.phase == "evaluate"
        commands = play.measured(auc=auc)
        (report,) = of_kind(commands, Report)
        assert report.evaluation.validation_values == {"auc": auc, "accuracy": 0.0}
        assert play.state.phase == "train"
        kept.append(len(of_kind(commands, Keep)))
    assert kept == [1, 1, 0]


def test_all_metrics_of_the_test_rows_are_computed_and_none_of_others(tested):
    play = tested(test_rows=300, epochs=1, keeps_scores=True)
    assert until_measured(play) == [Measure("test", None)]
    play.later(1.0)
    commands = play.measured(auc=0.8)
    (result,) = records(commands, FinalResult)
    assert result.values == {"accuracy": 0.0, "auc": 0.8}
    assert play.finish.status == "finished"


def test_metrics_that_come_after_the_end_are_ignored(tested):
    play = tested(metric="auc", keeps_scores=True)
    until_measured(play)
    play.interrupt()
    play.later(6.0)
    assert play.finish.status == "stopped"
    assert play.measured(auc=0.7) == []


def test_keep_best_keeps_improvements_only(tested):
    play = tested(keep="best")
    kept = [bool(of_kind(evaluate(play, loss), Keep)) for loss in (0.5, 0.6, 0.5, 0.4, 0.45)]
    assert kept == [True, False, False, True, False]


@pytest.mark.parametrize("average", [True, False])
def test_the_mean_is_shown_during_evaluations(tested, average):
    play = tested(average=average, max_seconds=1.5)
    for _ in range(2):
        commands = [*begin_evaluation(play), *end_evaluation(play)]
        order = [type(each) for each in commands]
        assert [each.shown for each in of_kind(commands, ShowMean)] == [True, False] * average
        if average and Keep in order:  # what is kept is the mean
            assert commands.index(ShowMean(True)) < order.index(Keep)
            assert order.index(Keep) < commands.index(ShowMean(False))
    assert play.state.phase == "finished"


@pytest.mark.parametrize(("keep", "kept"), [("best", 0), ("last", 1)])
def test_the_last_model_is_kept_at_the_end_with_keep_last(tested, keep, kept):
    play = tested(keep=keep, max_seconds=1.5)
    evaluate(play, 0.4)
    assert len(of_kind(evaluate(play, 0.6), Keep)) == kept


def test_a_run_is_finished_after_its_epochs_and_a_last_evaluation(tested):
    play = tested(train_rows=1000, epochs=3, eval_seconds=1e9)
    play.work_on()
    assert play.finish == Finish("finished")
    assert [event.rows for event in records(play.said, EpochEnded)] == [1000] * 3
    (report,) = of_kind(play.said, Report)
    assert (report.evaluation.epochs, report.evaluation.validation_loss) == (3.0, 0.5)
    assert {c.worker for c in play.said if is_send(c, Stop)} == {"a", "b"}


NO_PROGRESS = "the validation loss has not improved for"
MISSED = "the target loss 0.1 was not reached;"
BY_EPOCH = {"train_rows": 2000, "eval_seconds": 1e9, "by_epoch": True}


@pytest.mark.parametrize(
    ("plan", "losses", "end"),
    [
        ({"target_loss": 0.3}, (0.31, 0.3), ["target"]),
        ({"target_loss": 0.3, "max_seconds": 1.0}, (0.2,), ["target"]),
        ({"max_seconds": 1.5}, (0.2, 0.1), ["time"]),
        (
            *({**BY_EPOCH, "patience": 3}, (0.5, 0.4, 0.45, 0.4, 0.41)),
            ["finished", f"{NO_PROGRESS} 3 epochs"],
        ),
        (
            *({**BY_EPOCH, "target_loss": 0.1, "epochs": 2}, (0.5, 0.4)),
            ["finished", f"{MISSED} training ended after 2 epochs"],
        ),
        (
            *({**BY_EPOCH, "target_loss": 0.1, "patience": 1}, (0.5, 0.5)),
            ["finished", f"{MISSED} {NO_PROGRESS} 1 epochs"],
        ),
    ],
)
def test_a_run_ends_after_the_evaluation_that_decides_it(tested, plan, losses, end):
    play = tested(**plan)
    for loss in losses:
        assert play.finish is None
        evaluate(play, loss)
    assert play.finish == Finish(*end)


def test_a_resumed_run_remembers_its_last_improvement(tested):
    play = tested(train_rows=2000, eval_seconds=1e9, by_epoch=True, patience=2)
    evaluate(play, 0.4)
    evaluate(play, 0.5)
    saved = save(play.state, play.now)
    resumed = Coordinator.resumed(play.state.plan, play.state.policy, saved)
    assert not resumed.progress.has_stalled()
    resumed.progress.evaluated_rows += 2000
    assert resumed.progress.has_stalled()


def test_an_interrupt_waits_for_leases_in_flight_and_skips_the_evaluation(tested):
    play = tested()
    play.interrupt()
    assert play.finish is None
    assert [works(play.done(key)) for key in ("a", "a", "b")] == [[], [], []]
    commands = play.done("b")
    assert commands[-1] == Finish("stopped", "interrupted")
    assert of_kind(play.said, Report) == []
    assert of_kind(commands, Keep) == [Keep(None)]


def test_a_model_that_was_not_trained_on_any_row_is_not_kept(tested):
    play = tested(max_seconds=1.0)
    play.later(1.0)
    play.lose("a")
    play.lose("b")
    play.attach("c")
    end_evaluation(play)
    assert play.finish == Finish("time")
    assert of_kind(play.said, Report) and not of_kind(play.said, Keep)


def test_an_interrupt_before_the_first_lease_ends_the_run(stage):
    play = stage()
    play.hello("a")
    commands = play.interrupt()
    assert [c for c in commands if not isinstance(c, Keep)] == [
        Send("a", Stop()),
        Finish("stopped", "interrupted"),
    ]


@pytest.mark.parametrize("phase", ["train", "evaluate"])
def test_an_interrupt_without_workers_ends_the_run(tested, phase):
    play = tested()
    if phase == "evaluate":
        until_evaluation(play)
    play.lose("a")
    play.lose("b")
    assert play.state.phase == phase
    assert play.interrupt()[-1] == Finish("stopped", "interrupted")


def test_nothing_changes_the_end_of_a_run(tested):
    play = tested()
    work = play.work["a"][0]
    stops = [Send("a", Stop()), Send("b", Stop())]
    assert play.abandon("all dead") == [*stops, Finish("failed", "all dead")]
    assert play.abandon("again") == []
    assert play.hello("late") == [Send("late", Stop())]
    commands = play.receive("a", play.answer(work))
    assert len(records(commands, LeaseDone)) == 1 and works(commands) == []
    play.goodbye("a")
    play.goodbye("b")
    assert play.interrupt() == []


def test_a_run_without_workers_fails_in_time(stage):
    play = stage(wait_for_workers=60.0)
    play.shuffle()
    assert play.later(60.0) == []
    assert play.later(0.5) == [Finish("failed", "no worker for 60 s")]
    assert play.later(100.0) == []


def test_the_wait_for_workers_starts_again_when_the_last_one_leaves(stage):
    play = stage("a", wait_for_workers=20.0)
    play.later(14.0)
    play.goodbye("a")
    assert of_kind(play.later(20.0), Finish) == []
    play.attach("b")
    play.later(50.0)
    assert play.finish is None


def test_the_updates_of_all_workers_are_traced_at_each_evaluation(tested):
    play = tested()
    evaluate(play, 0.5)
    evaluate(play, 0.5)
    trace = play.state.workers["a"].update_trace.points
    assert len(trace) == 2
    assert trace[1][1] == play.state.totals(play.now).workers[0].updates
    assert trace[0] < trace[1]


def test_a_run_whose_rows_give_no_finite_gradient_ends_with_advice(stage):
    play = stage(cpu=(10, 10), lease_seconds=1e-9)  # leases of one batch
    play.attach("a")
    play.work_on(skipped=1)
    assert (play.finish.status, play.finish.diverged) == ("failed", True)
    assert "% of the rows" in play.finish.reason and "lower --lr" in play.finish.reason
