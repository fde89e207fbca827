import pytest

from hogbatch.events.event import (
    CheckpointBegins,
    CheckpointFailed,
    CheckpointWritten,
    EvaluationBegins,
    Event,
    Goodbye,
    OutOfMemory,
    Poisoned,
    Resumed,
    WorkerLeft,
    WorkerLost,
    WorkerParked,
    WorkerUnparked,
)
from tests.unit.views.status.conftest import (
    ON_SERVERS,
    START,
    TRAINING,
    ended,
    evaluation,
    event,
    joined,
    lease,
    own_worker,
    ready,
    server_workers,
    started,
    state_after,
)


def test_leases_add_up_to_rows_updates_and_seconds():
    state = state_after(*TRAINING)
    (worker,) = state.workers
    assert (state.rows.value, state.seconds, state.epochs) == (1000, 2.0, 1.0)
    assert (worker.rows.value, worker.updates.value, worker.batch_size) == (1000, 8, 16)
    assert worker.updates.course.points == [(1.0, 4), (2.0, 8)]
    assert worker.utilization == [(2.0, 0.5)]
    assert state.damaged == 0


def test_batch_sizes_are_recorded_when_they_change():
    state = state_after(*TRAINING, lease(3.0, 0, 64, batch_size=32), lease(4.0, 64, 99))
    assert state.workers[0].batch_sizes.points == [(0.0, 16), (3.0, 32), (4.0, 16)]


def test_the_speed_is_recent():
    slow = [lease(float(second), 0, 100) for second in range(1, 21)]
    fast = [lease(20.0 + second, 0, 500) for second in range(1, 11)]
    state = state_after(started(), joined(), ready(), *slow, *fast)
    assert state.rows_per_second == pytest.approx(500)
    assert state.workers[0].rows.speed(30.0) == pytest.approx(500)
    assert state.workers[0].rows.speed(35.0) == pytest.approx(250), "idle for 5 of 10 s"


def test_the_speed_of_a_finished_run_is_its_mean():
    state = state_after(*TRAINING, ended(seconds=4.0, rows=1000, epochs=1.0))
    assert state.rows_per_second == 250.0


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"epochs": 10}, 18.0),  # 9000 rows at 500 rows/s
        ({"epochs": None, "max_seconds": 5.0}, 3.0),
        ({"epochs": 10, "max_seconds": 5.0}, 3.0),
        ({"epochs": None, "max_seconds": 1.0}, 0.0),
        ({"epochs": None}, None),
    ],
)
def test_the_time_left_follows_from_the_stopping_criteria(changes, left):
    assert state_after(started(**changes), *TRAINING[1:]).seconds_left() == left


def test_the_epoch_is_measured():
    state = state_after(started(), joined(), ready(), lease(2.0, 0, 400))
    assert state.epoch_fraction == 0.4
    state.apply(lease(5.0, 400, 1000))
    assert state.epoch_fraction == 0.0
    state.apply(ended(rows=1000, seconds=5.0))
    assert state.epoch_fraction == 1.0


def test_patience_is_counted_from_the_best_model():
    later = evaluation(5.0, 2500, 0.41)
    state = state_after(started(patience=4), *TRAINING[1:], later)
    assert state.best.rows == 1000 and state.patience_left() == 2.5


def test_the_best_model_has_the_lowest_test_loss():
    state = state_after(*TRAINING, evaluation(3, 1500, 0.3), evaluation(4, 2000, 0.35))
    assert state.best.test_loss == 0.3
    assert [each.test_loss for each in state.history] == [0.4, 0.3, 0.35]


def test_with_hashed_outputs_the_best_model_has_the_highest_metric():
    values = [evaluation(n, n * 500, n, test_values={"P@1": p}) for n, p in ((1, 0.5), (2, 0.6))]
    state = state_after(started(by_metric=True, loss="softmax"), *values)
    assert state.best.test_values == {"P@1": 0.6}


def test_without_a_test_set_no_model_is_the_best():
    assert state_after(started(), evaluation(1, 500, None, test_values={})).best is None


def test_workers_that_leave_are_kept_with_the_reason():
    events = (
        *(joined("gpu-0", "gpu:0"), ready("gpu-0", 1024)),
        event(WorkerLost, "gpu-0", "process 7 was killed"),
        event(WorkerLeft, worker="gpu-0", reissued=[]),
        *(event(Goodbye, "cpu-0"), event(WorkerLeft, worker="cpu-0", reissued=[])),
    )
    state = state_after(*TRAINING, *events)
    assert [(each.name, each.state, each.left_at) for each in state.workers] == [
        *(("cpu-0", "left", 2.0), ("gpu-0", "lost", 2.0)),
    ]
    assert state.workers[1].reason == "process 7 was killed"
    assert state.present == []


def test_parking_changes_the_state_of_a_worker():
    parked = event(WorkerParked, "cpu-0", "slow")
    state = state_after(*TRAINING, parked)
    assert (state.workers[0].state, state.workers[0].reason) == ("parked", "slow")
    state.apply(event(WorkerUnparked, "cpu-0"))
    assert (state.workers[0].state, state.workers[0].reason) == ("trains", "")


def test_work_after_the_checkpoint_of_a_resumed_run_is_forgotten():
    lost = (lease(3.0, 0, 500), evaluation(3.0, 1500, 0.1), joined("cpu-1"), ready("cpu-1"))
    resumed = event(Resumed, "c/1", 1, [[0, 1000]], 1000, 2.0)
    state = state_after(*TRAINING, *lost, started(), resumed)
    assert (state.rows.value, state.seconds, state.best.test_loss) == (1000, 2.0, 0.4)
    (worker,) = state.workers
    assert (worker.name, worker.rows.value, worker.updates.value) == ("cpu-0", 1000, 8)
    assert worker.left_at == 2.0 and worker.utilization == [(2.0, 0.5)]
    assert not state.trains and state.ended is None
    assert state.notices[-1].text == "resumed from c/1"


def test_an_evaluation_that_followed_the_checkpoint_with_equal_rows_is_forgotten():
    again = evaluation(2.0, 1000, 0.4)
    state = state_after(
        started(),
        evaluation(1.0, 500, 0.5),
        evaluation(2.0, 1000, 0.4),
        started(),
        event(Resumed, "c/1", 1, [], 1000, 2.0, evaluations=1),
        again,
    )
    assert [each.rows for each in state.history] == [500, 1000]


def test_a_run_that_is_resumed_in_another_directory_begins_where_its_checkpoint_was():
    resumed = event(Resumed, "c/1", 1, [], 1500, 2.0)
    state = state_after(started(), resumed)
    assert (state.rows.value, state.seconds, state.rows_per_second) == (1500, 2.0, None)
    for each in (joined(), ready(), lease(3.0, 0, 100)):
        state.apply(each)
    assert (state.rows.value, state.epochs) == (1600, 1.6)
    assert state.rows_per_second == state.workers[0].rows.speed(3.0) == 100.0


def test_the_size_of_the_training_set_of_an_earlier_version_follows_from_its_evaluations():
    state = state_after(*TRAINING[1:5])
    assert state.epochs is None
    state.apply(TRAINING[5])
    assert state.epochs == 1.0


def test_checkpoints_and_other_incidents_are_counted_over_the_seconds():
    state = state_after(
        *TRAINING,
        event(CheckpointWritten, 1, 1000, 1.5),
        lease(3.0, 0, 16),
        event(OutOfMemory, "cpu-0", 16, 8),
    )
    assert state.occurrences[CheckpointWritten] == [2.0]
    assert state.occurrences[OutOfMemory] == [3.0]
    assert state.occurrences[Poisoned] == []
    assert state.notices[-1].seconds == 3.0
    state.apply(event(Resumed, "c/1", 0, [], 1000, 2.0))
    assert state.occurrences[CheckpointWritten] == [2.0]
    assert state.occurrences[OutOfMemory] == [], "repeated, so it is forgotten"
    assert state.occurrences[Resumed] == [2.0]


def test_the_seconds_in_which_a_worker_is_parked_are_known():
    parked = event(WorkerParked, "cpu-0", "it is slow")
    back = event(WorkerUnparked, "cpu-0")
    state = state_after(*TRAINING, parked, evaluation(3.0, 1000, 0.4), back)
    assert state.workers[0].parked.points == [(2.0, 1), (3.0, 0)]


def test_the_staleness_of_a_gpu_is_summed_over_its_updates():
    leases = [lease(n, 0, 100, staleness=s, updates=4) for n, s in ((1.0, 2.5), (2.0, 0.5))]
    (worker,) = state_after(started(), joined(), ready(), *leases).workers
    assert worker.missed.course.points == [(1.0, 10), (2.0, 12)]
    assert worker.staleness == 1.5


@pytest.mark.parametrize("unknown", [lease(3.0, 0, 10, worker="cpu-7"), server_workers("cpu-7")])
def test_an_event_of_an_unknown_worker_is_counted_and_ignored(unknown):
    state = state_after(*TRAINING, unknown)
    assert (state.damaged, state.last_at) == (1, TRAINING[-1].at)


def test_an_event_of_a_later_version_is_ignored():
    state = state_after(*TRAINING, Event(at=START + 7))
    assert (state.damaged, state.last_at) == (0, START + 7)


def test_an_evaluation_is_under_way_until_its_result():
    state = state_after(*TRAINING, event(EvaluationBegins, rows=100))
    assert state.evaluates
    state.apply(evaluation(3.0, 2000, 0.3))
    assert not state.evaluates
    state.apply(event(EvaluationBegins, rows=100))
    state.apply(ended("stopped"))
    assert not state.evaluates


@pytest.mark.parametrize(
    "last",
    [
        CheckpointWritten(0, 400, 1.0),
        CheckpointFailed("No space left"),
        Poisoned("weights", 1, 5, []),
        *(started(), ended()),
    ],
    ids=lambda event: event.name,
)
def test_a_checkpoint_is_being_written_until_it_is_written_or_given_up(last):
    state = state_after(*TRAINING, CheckpointBegins(0, 400, 1.0))
    assert state.saves and state.checkpoint_at is None
    state.apply(last)
    assert not state.saves and state.damaged == 0


def test_a_lease_at_the_moment_of_the_checkpoint_is_kept():
    at = 2.00006  # is rounded up in the course of the rows
    resumed = event(Resumed, "1", 0, [], 400, at)
    state = state_after(started(), joined(), ready(), lease(at, 0, 400), started(), resumed)
    assert [worker.rows.value for worker in state.workers] == [400]


def test_workers_of_servers_are_kept_apart_from_the_workers_of_the_run():
    state = state_after(*ON_SERVERS)
    assert [worker.name for worker in state.workers] == ["server-0", "server-1"]
    assert (state.rows.value, state.updates, state.damaged) == (3840, 40, 0), "counted once"
    one, two = state.workers
    assert [(each.name, each.device) for each in one.workers] == [
        *(("cpu-0", "cpu:2"), ("cpu-1", "cpu:2")),
    ]
    assert [(each.rows.value, each.updates.value) for each in one.workers] == [(640, 10)] * 2
    assert (one.others, two.others) == (3, 0)
    (gpu,) = two.workers
    assert (gpu.device, gpu.state, gpu.batch_size, gpu.busy) == ("gpu", "trains", 64, 0.5)


def test_the_last_figures_of_a_worker_of_a_server_count():
    later = server_workers("server-0", own_worker(rows=6400, state="parked", batch_size=128))
    (worker,) = state_after(*ON_SERVERS, lease(3.0, 0, 64, "server-0"), later).workers[0].workers
    assert (worker.rows.value, worker.updates.value, worker.measured_at) == (6400, 100, 3.0)
    assert (worker.state, worker.batch_size) == ("parked", 128)
    courses = worker.rows.course, worker.updates.course, worker.batch_sizes
    assert not any(course.points for course in courses), "they would fill memory"


def test_the_speed_of_a_worker_of_a_server_is_that_of_its_last_figures():
    state = state_after(*ON_SERVERS, lease(4.0, 0, 64, "server-0"))
    assert state.speed_of(state.workers[0].workers[0]) == 320.0, "640 rows in 2 s"
    state.apply(server_workers("server-0", own_worker(rows=2640)))
    assert state.speed_of(state.workers[0].workers[0]) == 660.0
    state.apply(server_workers("server-0", own_worker(rows=4000)))
    state.apply(ended(seconds=8.0, rows=4000))
    assert state.speed_of(state.workers[0].workers[0]) == 1000.0, "the mean until its figures"


def test_the_speed_of_a_worker_of_a_lost_server_is_that_until_its_last_figures():
    lost = event(WorkerLost, "server-0", "its machine died")
    state = state_after(*ON_SERVERS, lease(9.0, 0, 64, "server-1"), lost)
    worker = state.workers[0].workers[0]
    assert (worker.left_at, worker.measured_at) == (9.0, 2.0)
    assert state.speed_of(worker) == 320.0, "640 rows in 2 s"


def test_a_worker_that_joins_a_server_late_has_the_speed_since_then():
    state = state_after(*ON_SERVERS, server_workers("server-1", own_worker("cpu-9")))
    state.apply(lease(3.0, 0, 64, "server-1"))
    state.apply(server_workers("server-1", own_worker("cpu-9", 500)))
    (worker,) = state.workers[1].workers
    assert state.speed_of(worker) == 500.0


def test_workers_leave_with_their_server_or_alone():
    gone = server_workers("server-0", own_worker(rows=640), own_worker("cpu-1", 640, state="left"))
    lost = event(WorkerLost, "server-1", "its machine died")
    one, two = state_after(*ON_SERVERS, gone, lost).workers
    assert [(each.state, each.left_at) for each in one.workers] == [("trains", None), ("left", 2.0)]
    assert [(each.state, each.left_at) for each in two.workers] == [("left", 2.0)]


def test_figures_after_the_checkpoint_of_a_resumed_run_are_forgotten():
    resumed = event(Resumed, "c/1", 0, [], 640, 1.0)
    state = state_after(*ON_SERVERS, started(), resumed)
    assert [(each.workers, each.others) for each in state.workers] == [([], 0)] * 2
