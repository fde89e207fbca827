"""The rows, lengths and batch sizes of leases."""

import pytest

from hogbatch.events.event import LeaseDone, WorkerLost
from hogbatch.policy.base import Operation
from hogbatch.policy.learning_rate import LearningRate
from tests.support.coordinator_stage import records, works


class Sizes:
    """A policy that always returns the same size."""

    def __init__(self, size):
        self.size = size

    def first_size(self, worker):
        return self.size

    def next_size(self, worker, others):
        return self.size


def test_no_worker_trains_before_the_order_is_written(stage):
    play = stage()
    play.hello("a")
    assert works(play.ready("a")) == []
    assert works(play.shuffle())


def test_the_first_lease_goes_to_all_before_the_second_to_any(stage):
    play = stage(lease_seconds=0.01)
    play.hello("a")
    play.ready("a")
    play.hello("b")
    play.ready("b")
    assert [key for key, _ in works(play.shuffle())] == ["a", "b", "a", "b"]


def test_leases_shrink_at_the_end_of_an_epoch(stage):
    play = stage("a", "b", train_rows=10_000, lease_seconds=1.0)
    play.work_on()
    rows = [work.stop - work.start for _, work in works(play.said)]
    assert rows[4] == 1000  # a second of work, once the speed is known
    assert rows[-5:] == sorted(rows[-5:], reverse=True)
    assert rows[-1] <= 10


def test_the_last_batches_of_an_epoch_are_of_similar_size_with_their_own_learning_rates(stage):
    rate = LearningRate(0.1, "linear", reference=10)
    play = stage("a", train_rows=1001, learning_rate=rate)
    play.work_on()
    leases = [(work.stop - work.start, work.learning_rate) for _, work in works(play.said)]
    assert {learning_rate for rows, learning_rate in leases[:-2]} == {0.1}
    assert leases[-2:] == [(6, pytest.approx(0.06)), (5, pytest.approx(0.05))]


def test_returned_rows_that_are_no_whole_batches_end_with_similar_batches(stage):
    play = stage(train_rows=10_008, gpu=(101, 101))
    play.attach("gpu", device="gpu")
    returned = play.work["gpu"][0]
    play.goodbye("gpu")
    assert (returned.start, returned.stop) == (0, 404)
    play.attach("a")
    play.work_on()
    leases = [work.stop - work.start for key, work in works(play.said) if key == "a"]
    assert [rows for rows in leases if rows % 10] == [7, 7, 7, 7]  # of the two leases of the GPU
    assert sum(leases) == 10_008


def test_done_in_no_time_is_no_division_by_zero(stage):
    play = stage("a", "b")
    play.done("a", seconds=0.0)
    play.done("b", seconds=5e-324)
    play.work_on(seconds=1e300)
    assert play.finish.status == "finished"


def test_done_said_twice_is_counted_and_ignored(stage):
    play = stage("a")
    done = play.answer(play.work["a"][0])
    play.done("a")
    rows = play.state.progress.rows
    assert play.receive("a", done) == []
    assert play.state.progress.rows == rows
    assert play.state.accounting.faults["messages_refused"] == 1


@pytest.mark.parametrize("rows", [0, 9, 11, 10**9])
def test_done_with_wrong_rows_loses_the_worker_and_credits_nothing(stage, rows):
    play = stage("a")
    commands = play.done("a", rows=rows)
    assert f"reported {rows} rows for lease 1" in records(commands, WorkerLost)[0].reason
    assert play.state.progress.rows == 0
    play.attach("b")
    play.work_on()
    assert play.finish.status == "finished"
    assert play.state.progress.rows == 1000


@pytest.mark.parametrize(
    ("wanted", "size"),
    [(0, 4), (-5, 4), (10**12, 64), (32.7, 32), (float("nan"), 4), (float("inf"), 64)],
)
def test_sizes_of_a_users_policy_are_clamped(stage, wanted, size):
    play = stage(policy=Sizes(wanted), cpu=(4, 64))
    first = works(play.attach("a"))
    later = works(play.done("a"))
    assert {work.batch_size for _, work in first + later} == {size}


def test_a_policy_sees_all_other_ready_workers(stage):
    asked = []

    class Curious(Sizes):
        def next_size(self, worker, others):
            asked.append((worker, others))
            return worker.batch_size

    play = stage("a", "b", policy=Curious(16), cpu=(4, 64))
    play.hello("unready")
    play.done("a", updates=7)
    ((worker, others),) = asked
    assert (worker.batch_size, worker.updates) == (16, 7)
    assert [other.updates for other in others] == [0]


def test_every_finished_lease_is_recorded(stage):
    play = stage("a")
    work = play.work["a"][0]
    play.now = 0.25
    rows, updates = [work.start, work.stop], (work.stop - work.start) // 10
    assert records(play.done("a"), LeaseDone) == [
        LeaseDone(0.25, 0, "cpu-0", 10, updates, rows=rows, busy_seconds=0.04)
    ]


def test_leases_end_when_an_evaluation_is_due(stage):
    play = stage("a", train_rows=1_000_000, validation_rows=10, eval_seconds=1.0, lease_seconds=0.5)
    play.done("a")  # its speed is known now: 1,000 rows/s
    play.now += 0.7
    while play.work["a"]:
        play.done("a")
        play.now += 0.001
    leases = [(work.start, work.stop) for _, work in works(play.said) if work.task == "train"]
    assert play.state.phase != "train"
    assert leases[-1][1] - leases[-1][0] <= 300  # rows, of the 500 in a usual lease


def test_a_gpu_alone_takes_the_rest_of_the_epoch(stage):
    play = stage(train_rows=1000, lease_seconds=10.0, gpu=(100, 100))
    play.hello("g", device="gpu")
    play.ready("g", profile=((100, 0.1),))
    play.shuffle()
    assert [(work.start, work.stop) for _, work in works(play.said)] == [(0, 1000)]


def test_an_evaluation_lease_takes_as_long_as_others(stage):
    play = stage(train_rows=100, validation_rows=100_000, lease_seconds=1.0)
    play.attach("a", profile=((10, 0.01),))  # 1,000 rows per second in training
    while play.state.phase != "evaluate":
        play.shuffle()
        play.done("a")
    rows = [work.stop - work.start for work in play.work["a"]]
    assert rows == [11 * 256] * 2  # 3,000 rows per second in evaluation


def test_a_gpu_beside_others_gets_a_short_first_lease_until_its_speed_is_known(stage):
    # As measured, 1,000 rows take 0.01 s; in training a row takes 1 ms.
    play = stage(train_rows=10_000, lease_seconds=0.1, gpu=(100, 1000))
    play.attach("a")
    play.attach("g", device="gpu", profile=((100, 0.001), (1000, 0.01)))
    (first,) = play.work["g"]
    assert first.stop - first.start == 4 * 100
    assert [key for key, _ in works(play.done("g"))] == ["g", "g"]


def test_a_policy_decides_again_once_the_speed_of_a_gpu_is_known(stage):
    decisions = []

    class Counts(Sizes):
        def decide(self, workers):
            decisions.append([worker.seconds_per_row for worker in workers])
            return [Operation(10) for _ in workers]

    play = stage(policy=Counts(10), train_rows=10_000)
    play.attach("a"), play.attach("g", device="gpu")
    decisions.clear()
    play.done("a"), play.done("g"), play.done("g")
    ((_, speed),) = decisions
    assert speed == pytest.approx(1e-3)
