import pytest
from msgspec.structs import replace

from hogbatch.coordinator.progress import Best, LossSums, Progress, TrainingClock
from hogbatch.wire.messages import Done
from tests.support.coordinator_stage import make_plan


def done(rows=100, loss=50.0, skipped=0, metric_sums=()):
    return Done(1, rows, 1, 0.1, loss, skipped, metric_sums)


def progress(**plan):
    made = Progress(make_plan(**plan))
    made.clock.run(100.0)
    return made


def evaluate(made, now, took=0.0):
    made.begin_evaluation(now)
    evaluation = made.end_evaluation(now + took, {}, {})
    made.clock.run(now + took)
    return evaluation


def test_a_mean_leaves_skipped_rows_out():
    sums = LossSums()
    sums.add(done(rows=100, loss=40.0, skipped=20, metric_sums=(60.0,)))
    assert sums.measured("logistic", 1.0) == (0.5, {"accuracy": 0.75})


def test_a_mean_is_divided_by_the_sum_of_the_weights():
    sums = LossSums()
    for extra_weight in (-30.0, 10.0):
        sums.add(replace(done(loss=45.0, metric_sums=(63.0,)), extra_weight=extra_weight))
    assert sums.measured("logistic", 1.0) == (0.5, {"accuracy": 0.7})


@pytest.mark.parametrize("skipped", [100, 101])
def test_rows_that_were_all_skipped_have_no_loss(skipped):
    sums = LossSums()
    sums.add(done(rows=100, loss=0.0, skipped=skipped))
    assert sums.measured("logistic", 1.0) is None


def test_superfluous_metric_sums_are_ignored():
    sums = LossSums()
    sums.add(done(metric_sums=(1.0, 2.0, 3.0, 4.0)))
    measured = sums.measured("multilabel", 1.0)
    assert measured.metrics == {"P@1": 0.01, "P@3": 0.02, "P@5": 0.03}


def test_squared_losses_are_reported_in_the_unit_of_the_labels():
    sums = LossSums()
    sums.add(done(rows=100, loss=50.0, metric_sums=(400.0,)))
    assert sums.measured("squared", 10.0) == (50.0, {"rmse": 20.0})
    assert sums.measured("logistic", 10.0).loss == 0.5


def test_the_best_loss_is_beaten_only_by_a_lower_one():
    best = Best()
    losses = (0.5, 0.5, 0.6, None, float("nan"), 0.4, 0.45)
    seen = [best.beaten_by(loss, 100 * n) for n, loss in enumerate(losses)]
    assert seen == [True, False, False, False, False, True, False]


def test_an_evaluation_reports_the_losses_since_the_last_one():
    made = progress(train_rows=200)
    made.add(done(loss=50.0))
    made.begin_evaluation(101.5)
    made.evaluated.add(done(loss=99.0))  # of an evaluation that was broken off
    made.clock.run(101.5)
    made.begin_evaluation(102.0)
    made.evaluated.add(done(rows=10, loss=3.0, metric_sums=(9.0,)))
    evaluation = made.end_evaluation(105.0, {}, {})
    assert (evaluation.seconds, evaluation.epochs, evaluation.rows) == (2.0, 0.5, 100)
    assert (evaluation.train_loss, evaluation.validation_loss) == (0.5, 0.3)
    assert evaluation.validation_values == {"accuracy": 0.9}
    made.clock.run(105.0)
    made.add(done(loss=20.0))
    assert evaluate(made, 106.0).train_loss == 0.2


TARGET = {"eval_seconds": None, "target_loss": 0.1, "validation_rows": 300}


@pytest.mark.parametrize(
    ("plan", "evaluated", "took", "pause", "due"),
    [
        ({"eval_seconds": 2.0}, None, 0.0, 0.0, 2.0),
        ({"eval_seconds": 2.0}, 3.0, 50.0, 0.0, 5.0),
        ({"eval_seconds": None}, None, 0.0, 0.0, 0.2),
        ({"eval_seconds": None}, 1.0, 2.0, 0.0, 11.0),  # five times as long as the evaluation
        ({"eval_seconds": None}, 90.0, 0.0, 0.0, 94.74),  # 5 % of the time
        (TARGET, 1.0, 2.0, 0.0, 3.0),  # up to half of the time
        # sqrt(2 * 4 * x) = x - 1 for x = 1 + 4 + sqrt(16 + 8) seconds of training
        (TARGET, 1.0, 2.0, 4.0, 9.9),
    ],
)
def test_when_the_next_evaluation_is_due(plan, evaluated, took, pause, due):
    """`evaluated` and `due` are training seconds; that of `evaluated` has taken some seconds."""
    made, offset = progress(**plan), 100.0
    if evaluated is not None:
        evaluate(made, 100.0 + evaluated, took=took)
        offset += took
    assert not made.evaluation_is_due(offset + 0.995 * due, pause)
    assert made.evaluation_is_due(offset + 1.005 * due, pause)


def test_an_epoch_that_took_milliseconds_is_evaluated_too():
    made = progress(eval_seconds=None, train_rows=100)
    evaluate(made, 100.1, took=0.01)
    assert not made.evaluation_is_due(100.13, 0.0)
    made.add(done())
    assert not made.evaluation_is_due(100.115, 0.0)  # sooner than an evaluation takes: never
    assert made.evaluation_is_due(100.13, 0.0)


def test_with_a_target_the_first_evaluation_comes_after_what_it_will_take():
    made = progress(eval_seconds=None, target_loss=0.1, train_rows=1000, validation_rows=300)
    assert not made.evaluation_is_due(100.0, 0.0)
    made.add(done(rows=100))  # in 0.2 s, so a forward pass over 300 rows takes another 0.2 s
    assert made.evaluation_is_due(100.2, 0.0)
    quick = progress(eval_seconds=None, target_loss=0.1, train_rows=1000, validation_rows=300)
    quick.add(done(rows=50))  # rows that took twice as long each
    assert not quick.evaluation_is_due(100.2, 0.0)


def test_the_first_evaluation_does_not_wait_for_the_first_lease_of_a_gpu():
    made = progress(eval_seconds=None, target_loss=0.1, train_rows=1000, validation_rows=300)
    made.expect_speed(0.002)  # measured by the GPU worker
    made.add(done(rows=10))  # of a CPU worker
    pause = 1e-9  # not 0, as the GPU trains
    assert made.evaluation_is_due(100.2, pause)
    assert not made.evaluation_is_due(100.2, 0.0)  # it is parked
    slower = progress(eval_seconds=None, target_loss=0.1, train_rows=1000, validation_rows=300)
    slower.expect_speed(0.02)
    slower.add(done(rows=100))
    assert slower.evaluation_is_due(100.2, pause)


def test_by_epoch_depends_on_rows_and_not_on_the_clock():
    made = progress(by_epoch=True, train_rows=200, eval_seconds=1.0)
    made.add(done())
    assert not made.evaluation_is_due(1e6, 0.0)
    made.epoch_ended = True
    assert made.evaluation_is_due(100.0, 0.0)
    evaluate(made, 100.0)
    assert not made.evaluation_is_due(1e6, 0.0)


@pytest.mark.parametrize(
    ("validation_rows", "target", "met"),
    [(10, 0.3, True), (10, 0.29, False), (0, 0.5, True), (0, 0.3, False), (10, None, False)],
)
def test_the_target_applies_to_the_test_loss_or_without_one_to_the_training_loss(
    validation_rows, target, met
):
    made = progress(validation_rows=validation_rows, target_loss=target)
    made.add(done(loss=50.0))
    made.begin_evaluation(101.0)
    if validation_rows:
        made.evaluated.add(done(rows=10, loss=3.0))
    assert made.target_is_met(made.end_evaluation(101.0, {}, {})) is met
    assert not made.target_is_met(evaluate(made, 102.0)), "without a loss"


@pytest.mark.parametrize(("keep", "after"), [("best", False), ("last", True)])
def test_the_current_model_is_wanted_until_there_is_a_best_one(keep, after):
    made = progress(keep=keep, validation_rows=10)
    assert made.wants_current_model
    made.begin_evaluation(101.0)
    made.evaluated.add(done(rows=10, loss=3.0))
    assert made.is_best(made.end_evaluation(101.0, {}, {}))
    assert made.wants_current_model is after


@pytest.mark.parametrize(
    ("metric", "best"),
    [
        (None, [True, True, True]),
        ("accuracy", [True, False, False]),
        ("brier", [True, False, True]),  # lower is better
        ("auc", [False, False, True]),  # it is not defined for the first two
    ],
)
def test_models_are_compared_by_the_loss_or_by_a_metric(metric, best):
    made, found = progress(validation_rows=10, metric=metric), []
    measured = [{"brier": 0.2}, {"brier": 0.3}, {"brier": 0.1, "auc": 0.6}]
    for loss, right, values in zip((3.0, 2.0, 1.0), (8.0, 7.0, 6.0), measured, strict=True):
        made.begin_evaluation(101.0)
        made.evaluated.add(done(rows=10, loss=loss, metric_sums=(right, 0.0, 0.0)))
        evaluation = made.end_evaluation(102.0, {}, values)
        assert evaluation.validation_values == {"accuracy": right / 10, **values}
        if metric in evaluation.validation_values:
            assert next(iter(evaluation.validation_values)) == metric
        found.append(made.is_best(evaluation))
    assert found == best


@pytest.mark.parametrize(
    ("losses", "improves"),
    [((0.5,), False), ((0.5, 0.4), True), ((0.5, 0.4999), False), ((0.5, 0.4, 0.45), False)],
)
def test_a_run_still_improves_if_its_last_evaluation_is_clearly_the_best(losses, improves):
    made = progress(validation_rows=10)
    for now, loss in enumerate(losses, 101):
        made.add(done())
        made.begin_evaluation(now)
        made.evaluated.add(done(rows=10, loss=10 * loss))
        made.is_best(made.end_evaluation(now, {}, {}))
    assert made.still_improves == improves


def test_a_clock_never_skips_more_than_it_has_run():
    clock = TrainingClock()
    clock.run(10.0)
    clock.skip(3.0, now=11.0)
    assert clock.read(11.0) == 0
    assert clock.read(12.0) == 1
