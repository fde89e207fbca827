"""The division of an evaluation among workers, so that all end at the same time."""

import pytest

CPU = ((10, 0.01),)  # 1,000 rows per second in training, three times as many in evaluation
GPU = ((100, 0.01),)  # 10,000 rows per second
FETCH_S = 0.1  # before a GPU worker can evaluate


@pytest.fixture
def evaluating(stage):
    """Makes a stage with these workers and test rows, at the beginning of an evaluation."""

    def make(test_rows, **workers):
        play = stage(epochs=1, train_rows=500, test_rows=test_rows, lease_seconds=100.0)
        for key, device in workers.items():
            play.hello(key, device=device)
        for key, device in workers.items():
            merge = (0.0, 2 * FETCH_S) if device == "gpu" else (0.0, 0.0)
            play.ready(key, GPU if device == "gpu" else CPU, merge=merge)
        play.shuffle()
        while play.state.phase != "evaluate":
            play.done(next(key for key in workers if play.work[key]))
        return play

    return make


def test_a_gpu_worker_gets_one_lease_with_which_it_ends_when_the_others_do(evaluating):
    play = evaluating(30_050, c="cpu", g="gpu")
    (work,) = play.work["g"]
    rows = work.stop - work.start
    assert rows % work.batch_size == 0
    seconds = FETCH_S + rows / 30_000
    assert seconds == pytest.approx((30_050 - rows) / 3000, rel=0.02)


def test_a_gpu_worker_gets_no_rows_that_are_evaluated_before_it_has_fetched_the_model(evaluating):
    play = evaluating(250, c="cpu", g="gpu")
    assert not play.work["g"]
    play.work_on()
    assert play.finish.status == "finished"


def test_one_of_several_gpu_workers_evaluates_however_few_rows_there_are(evaluating):
    play = evaluating(20, g="gpu", h="gpu")
    assert [len(play.work[key]) for key in "gh"] in ([1, 0], [0, 1])
    play.work_on()
    assert play.finish.status == "finished"


def test_the_time_to_fetch_the_model_is_not_part_of_the_measured_speed(evaluating):
    play = evaluating(30_000, c="cpu", g="gpu")
    (work,) = play.work["g"]
    play.done("g", seconds=FETCH_S + (work.stop - work.start) / 60_000)
    assert play.state.workers["g"].evaluation_speed.value == pytest.approx(1 / 60_000)
