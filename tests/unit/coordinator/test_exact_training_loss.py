"""The evaluation of all training rows, which follows that of the test rows at the end of epochs."""

import pytest

from hogbatch.coordinator.commands import Finish, Keep, Report
from tests.support.coordinator_stage import of_kind, works

ROWS, TEST_ROWS = 5000, 300


@pytest.fixture
def play(stage):
    """Two workers, two epochs and no evaluation due before the end of an epoch."""
    made = stage(train_rows=ROWS, test_rows=TEST_ROWS, epochs=2, evaluate_train=True)
    made.attach("a", "b")
    return made


def answer(work):
    """What a worker answers: losses of 0.2 per training row evaluated, and 0.4 per test row."""
    if work.task == "train":
        return {}
    rows = work.stop - work.start
    loss, accuracy = (0.2, 0.9) if work.rows_of == "train" else (0.4, 0.8)
    return {"loss": loss * rows, "metric_sums": (accuracy * rows,)}


def step(play):
    """One worker finishes a lease, or time passes."""
    play.shuffle()
    busy = [key for key, held in play.work.items() if held]
    if not busy:
        return play.later(0.06)
    key = min(busy, key=lambda key: play.work[key][0].number)
    work = play.work[key][0]
    play.now += (work.stop - work.start) * play.seconds_per_row
    return play.done(key, **answer(work))


def evaluates(play, rows_of):
    return any(
        (work.task, work.rows_of) == ("evaluate", rows_of)
        for held in play.work.values()
        for work in held
    )


def until(play, condition):
    """All commands until `condition` holds."""
    commands = []
    while not condition():
        commands += step(play)
    return commands


def reports(play):
    return [command.evaluation for command in of_kind(play.said, Report)]


def test_all_training_rows_are_evaluated_once_after_each_epoch(play):
    until(play, lambda: play.finish)
    evaluations = reports(play)
    assert [each.epochs for each in evaluations] == [1.0, 2.0]
    for each in evaluations:
        assert (each.exact_train_loss, each.test_loss) == (pytest.approx(0.2), pytest.approx(0.4))
        assert each.train_values == {"accuracy": pytest.approx(0.9)}
        assert each.train_loss == pytest.approx(0.5)  # before the updates
    leases = [work for _, work in works(play.said) if work.task == "evaluate"]
    covered = sorted(
        row for work in leases if work.rows_of == "train" for row in range(work.start, work.stop)
    )
    assert covered == sorted(2 * [*range(ROWS)])


def test_training_rows_are_evaluated_at_the_end_of_an_epoch_or_of_the_run(stage):
    plan = {"train_rows": 10 * ROWS, "test_rows": TEST_ROWS, "evaluate_train": True}
    play = stage("a", "b", **plan, epochs=1, eval_seconds=1.0)
    until(play, lambda: play.finish)
    exact = [each.exact_train_loss for each in reports(play)]
    assert len(exact) > 2
    assert exact[:-1] == [None] * (len(exact) - 1) and exact[-1] == pytest.approx(0.2)
    play = stage("a", "b", **plan, max_seconds=2.0)
    until(play, lambda: play.finish)
    assert play.finish.status == "time"
    (evaluation,) = reports(play)
    assert 0 < evaluation.epochs < 1 and evaluation.exact_train_loss == pytest.approx(0.2)


def test_the_interval_of_evaluations_depends_on_the_test_rows_only(play):
    until(play, lambda: evaluates(play, "train"))
    taken = play.state.progress.evaluation_seconds
    play.later(10.0)
    until(play, lambda: reports(play))
    assert play.state.progress.evaluation_seconds == taken < 10.0


def test_without_test_rows_the_training_rows_are_evaluated(stage):
    play = stage("a", train_rows=ROWS, epochs=1, evaluate_train=True)
    until(play, lambda: play.finish)
    (evaluation,) = reports(play)
    assert (evaluation.test_loss, evaluation.exact_train_loss) == (None, pytest.approx(0.2))


def test_training_rows_of_a_lost_worker_are_evaluated_by_another(play):
    until(play, lambda: evaluates(play, "train"))
    assert not evaluates(play, "test")
    assert set(play.work) == {"a", "b"} and all(play.work.values())
    play.lose("a")
    until(play, lambda: reports(play))
    assert reports(play)[0].exact_train_loss == pytest.approx(0.2)


@pytest.mark.parametrize("end", [Finish("stopped", "interrupted"), Finish("failed", "all gone")])
def test_a_run_that_ends_earlier_keeps_the_result_of_the_test_rows(play, end):
    until(play, lambda: evaluates(play, "train"))
    if end.status == "stopped":
        commands = play.interrupt()
    else:
        play.lose("a")
        play.lose("b")
        commands = play.abandon(end.reason)
    assert play.finish == end
    (report,) = of_kind(commands, Report)
    assert report.evaluation.test_loss == pytest.approx(0.4)
    assert report.evaluation.exact_train_loss is None
    assert of_kind(commands, Keep) == [Keep(report.evaluation)]


def test_an_interrupt_before_the_training_rows_leaves_them_out(play):
    until(play, lambda: evaluates(play, "test"))
    play.interrupt()
    until(play, lambda: play.finish)
    assert play.finish == Finish("stopped", "interrupted")
    assert [each.exact_train_loss for each in reports(play)] == [None]


def test_rows_that_kill_workers_are_not_evaluated(stage):
    play = stage("a", train_rows=ROWS, epochs=1, evaluate_train=True, cpu=(100, 100))
    for name in ("b", "c", "d"):
        play.lose(next(iter(play.state.workers)))
        play.attach(name)
    until(play, lambda: play.finish)
    assert play.state.epochs.quarantined > 0
    assert [each.exact_train_loss for each in reports(play)] == [None]


def test_a_run_that_has_diverged_ends_at_once(play):
    while not evaluates(play, "test"):
        play.shuffle()
        key = next(key for key, held in play.work.items() if held)
        rows = play.work[key][0].stop - play.work[key][0].start
        play.done(key, skipped=rows, loss=0.0)
    until(play, lambda: play.finish)
    assert play.finish.diverged
    assert not any(work.rows_of == "train" for _, work in works(play.said))
