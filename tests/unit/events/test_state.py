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
from tests.support.run_events import (
    ON_SERVERS,
    TRAINING,
    ended,
    evaluation,
    joined,
    lease,
    own_worker,
    ready,
    server_workers,
    started,
    state_after,
)

LOST = WorkerLost("server-0", "its machine died")


def test_leases_add_up_to_rows_updates_and_seconds():
    state = state_after(*TRAINING, lease(3.0, 0, 64, batch_size=32), lease(4.0, 64, 100))
    (worker,) = state.workers
    assert (state.rows.value, state.seconds, state.epochs, state.damaged) == (1100, 4.0, 1.1, 0)
    assert (worker.rows.value, worker.updates.value, worker.batch_size) == (1100, 16, 16)
    assert worker.updates.course.points == [(1.0, 4), (2.0, 8), (3.0, 12), (4.0, 16)]
    assert worker.batch_sizes.points == [(0.0, 16), (3.0, 32), (4.0, 16)]
    assert worker.utilization == [(2.0, 0.5)]


def test_the_speed_is_recent_and_after_the_end_the_mean():
    leases = [lease(float(second), 0, 100) for second in range(1, 21)]
    leases += [lease(20.0 + second, 0, 500) for second in range(1, 11)]
    state = state_after(started(), joined(), ready(), *leases)
    assert state.rows_per_second == pytest.approx(500)
    assert state.workers[0].rows.speed(30.0) == pytest.approx(500)
    assert state.workers[0].rows.speed(35.0) == pytest.approx(250), "idle for 5 of 10 s"
    state.apply(ended(seconds=35.0, rows=7000, epochs=7.0))
    assert state.rows_per_second == 200.0


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"epochs": 10}, 18.0),  # 9000 rows at 500 rows/s
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


def test_the_best_model_has_the_lowest_test_loss_and_patience_counts_from_it():
    worse = evaluation(3, 1500, 0.45), evaluation(5, 2500, 0.41)
    state = state_after(started(patience=4), *TRAINING[1:], *worse)
    assert [each.validation_loss for each in state.history] == [0.4, 0.45, 0.41]
    assert (state.best.rows, state.patience_left()) == (1000, 2.5)
    assert state_after(started(), evaluation(1, 500, None, validation_values={})).best is None


def test_with_hashed_outputs_the_best_model_has_the_highest_metric():
    values = [
        evaluation(n, n * 500, n, validation_values={"P@1": p}) for n, p in ((1, 0.5), (2, 0.6))
    ]
    state = state_after(started(metric="P@1", loss="softmax"), *values)
    assert state.best.validation_values == {"P@1": 0.6}


def test_workers_that_leave_are_kept_with_the_reason():
    state = state_after(
        *(*TRAINING, joined("gpu-0", "gpu:0"), ready("gpu-0", 1024)),
        *(WorkerLost("gpu-0", "was killed"), WorkerLeft(worker="gpu-0", reissued=[])),
        *(Goodbye("cpu-0"), WorkerLeft(worker="cpu-0", reissued=[])),
    )
    found = [(each.name, each.state, each.reason, each.left_at) for each in state.workers]
    assert found == [("cpu-0", "left", "", 2.0), ("gpu-0", "lost", "was killed", 2.0)]
    assert state.present == []


def test_a_worker_is_parked_for_a_while():
    state = state_after(*TRAINING, WorkerParked("cpu-0", "slow"), evaluation(3.0, 1000, 0.4))
    (worker,) = state.workers
    assert (worker.state, worker.reason) == ("parked", "slow")
    state.apply(WorkerUnparked("cpu-0"))
    assert (worker.state, worker.reason) == ("trains", "")
    assert worker.parked.points == [(2.0, 1), (3.0, 0)]


def test_the_staleness_of_a_gpu_is_summed_over_its_updates():
    leases = [lease(n, 0, 100, staleness=s, updates=4) for n, s in ((1.0, 2.5), (2.0, 0.5))]
    (worker,) = state_after(started(), joined(), ready(), *leases).workers
    assert worker.missed.course.points == [(1.0, 10), (2.0, 12)]
    assert worker.staleness == 1.5


def test_work_after_the_checkpoint_of_a_resumed_run_is_forgotten():
    lost = (
        *(lease(3.0, 0, 500), evaluation(3.0, 1500, 0.1), joined("cpu-1"), ready("cpu-1")),
        OutOfMemory("cpu-0", 16, 8),
    )
    saved = CheckpointWritten(1, 1000, 1.5)
    state = state_after(*TRAINING, saved, *lost)
    assert state.occurrences == {"checkpoint": [2.0], "out_of_memory": [3.0]}
    assert state.notices[-1].seconds == 3.0
    state.apply(started())
    state.apply(Resumed("c/1", 1, [[0, 1000]], 1000, 2.0))
    assert (state.rows.value, state.seconds, state.best.validation_loss) == (1000, 2.0, 0.4)
    (worker,) = state.workers
    assert (worker.name, worker.rows.value, worker.updates.value) == ("cpu-0", 1000, 8)
    assert worker.left_at == 2.0 and worker.utilization == [(2.0, 0.5)]
    assert not state.trains and state.ended is None
    assert state.occurrences == {"checkpoint": [2.0], "out_of_memory": [], "resumed": [2.0]}
    assert state.notices[-1].text == "resumed from c/1"


def test_an_evaluation_that_followed_the_checkpoint_with_equal_rows_is_forgotten():
    first, second = evaluation(1.0, 500, 0.5), evaluation(2.0, 1000, 0.4)
    resumed = Resumed("c/1", 1, [], 1000, 2.0, evaluations=1)
    state = state_after(started(), first, second, started(), resumed, second)
    assert [each.rows for each in state.history] == [500, 1000]


def test_a_lease_at_the_moment_of_the_checkpoint_is_kept():
    at = 2.00006  # is rounded up in the course of the rows
    resumed = Resumed("1", 0, [], 400, at)
    state = state_after(started(), joined(), ready(), lease(at, 0, 400), started(), resumed)
    assert [worker.rows.value for worker in state.workers] == [400]


def test_a_run_that_is_resumed_in_another_directory_begins_where_its_checkpoint_was():
    state = state_after(started(), Resumed("c/1", 1, [], 1500, 2.0))
    assert (state.rows.value, state.seconds, state.rows_per_second) == (1500, 2.0, None)
    for each in (joined(), ready(), lease(3.0, 0, 100)):
        state.apply(each)
    assert (state.rows.value, state.epochs) == (1600, 1.6)
    assert state.rows_per_second == state.workers[0].rows.speed(3.0) == 100.0


@pytest.mark.parametrize(
    ("event", "damaged"),
    [(lease(3.0, 0, 10, "cpu-7"), 1), (server_workers("cpu-7"), 1), (Event(at=7.0), 0)],
    ids=["unknown worker", "unknown server", "of a later version"],
)
def test_an_event_that_cannot_be_applied_is_ignored(event, damaged):
    state = state_after(*TRAINING, event)
    assert (state.damaged, state.rows.value) == (damaged, 1000)
    assert state.last_at == (TRAINING[-1].at if damaged else 7.0)


@pytest.mark.parametrize("last", [evaluation(3.0, 2000, 0.3), ended("stopped"), started()])
def test_an_evaluation_is_under_way_until_its_result(last):
    state = state_after(*TRAINING, EvaluationBegins(rows=100))
    assert state.evaluates
    state.apply(last)
    assert not state.evaluates


@pytest.mark.parametrize(
    "last",
    [
        *(CheckpointWritten(0, 400, 1.0), CheckpointFailed("full"), Poisoned("w", 1, 5, [])),
        *(started(), ended()),
    ],
    ids=lambda event: event.name,
)
def test_a_checkpoint_is_being_written_until_it_is_written_or_given_up(last):
    state = state_after(*TRAINING, CheckpointBegins(0, 400, 1.0))
    assert state.saves and state.checkpoint_at is None
    state.apply(last)
    assert not state.saves and state.damaged == 0


def test_workers_of_servers_are_kept_apart_from_the_workers_of_the_run():
    state = state_after(*ON_SERVERS)
    assert (state.rows.value, state.updates, state.damaged) == (3840, 40, 0), "counted once"
    one, two = state.workers
    assert (one.name, one.others, two.name, two.others) == ("server-0", 3, "server-1", 0)
    own = [(each.name, each.device, each.rows.value, each.updates.value) for each in one.workers]
    assert own == [("cpu-0", "cpu:2", 640, 10), ("cpu-1", "cpu:2", 640, 10)]
    (gpu,) = two.workers
    assert (gpu.device, gpu.state, gpu.batch_size, gpu.busy) == ("gpu", "trains", 64, 0.5)
    later = server_workers("server-0", own_worker(rows=6400, state="parked", batch_size=128))
    state.apply(lease(3.0, 0, 64, "server-0"))
    state.apply(later)
    (worker,) = one.workers
    assert (worker.rows.value, worker.updates.value, worker.measured_at) == (6400, 100, 3.0)
    assert (worker.state, worker.batch_size, one.others) == ("parked", 128, 0)
    courses = worker.rows.course, worker.updates.course, worker.batch_sizes
    assert not any(course.points for course in courses), "they would fill memory"


def test_the_speed_of_a_worker_of_a_server_is_that_of_its_last_figures():
    state = state_after(*ON_SERVERS, lease(4.0, 0, 64, "server-0"))
    assert state.speed_of(state.workers[0].workers[0]) == 320.0, "640 rows in 2 s"
    state.apply(server_workers("server-0", own_worker(rows=2640)))
    assert state.speed_of(state.workers[0].workers[0]) == 660.0
    state.apply(ended(seconds=8.0, rows=4000))
    assert state.speed_of(state.workers[0].workers[0]) == 660.0, "the mean until its figures"


def test_the_speed_of_a_worker_of_a_lost_server_is_that_until_its_last_figures():
    state = state_after(*ON_SERVERS, lease(9.0, 0, 64, "server-1"), LOST)
    worker = state.workers[0].workers[0]
    assert (worker.left_at, worker.measured_at) == (9.0, 2.0)
    assert state.speed_of(worker) == 320.0, "640 rows in 2 s"


def test_a_worker_that_joins_a_server_late_has_the_speed_since_then():
    late = server_workers("server-1", own_worker("cpu-9"))
    state = state_after(*ON_SERVERS, late, lease(3.0, 0, 64, "server-1"))
    state.apply(server_workers("server-1", own_worker("cpu-9", 500)))
    (worker,) = state.workers[1].workers
    assert state.speed_of(worker) == 500.0


def test_workers_leave_with_their_server_or_alone():
    gone = server_workers("server-1", own_worker(rows=640), own_worker("cpu-1", 640, state="left"))
    one, two = state_after(*ON_SERVERS, gone, LOST).workers
    assert [(each.state, each.left_at) for each in one.workers] == [("left", 2.0)] * 2
    assert [(each.state, each.left_at) for each in two.workers] == [("trains", None), ("left", 2.0)]


def test_figures_after_the_checkpoint_of_a_resumed_run_are_forgotten():
    state = state_after(*ON_SERVERS, started(), Resumed("c/1", 0, [], 640, 1.0))
    assert [(each.workers, each.others) for each in state.workers] == [([], 0)] * 2
