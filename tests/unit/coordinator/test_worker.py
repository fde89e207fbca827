import math

import pytest

from hogbatch.coordinator.plan import Limits
from hogbatch.coordinator.worker import HeldLease, Worker, failed_batch
from hogbatch.wire.messages import Done, Lease, Ready

LEASE = Lease(5, "train", 0, 100, 200, 10, 0.1, 7)


def make_worker(device="cpu"):
    return Worker(
        key="a",
        number=3,
        name=f"{device}-0",
        device=device,
        threads=2,
        pid=1,
        fence=7,
        last_seen=0.0,
        teams=3,
        limits=(4, 64),
    )


@pytest.fixture
def worker():
    return make_worker()


@pytest.fixture
def gpu():
    return make_worker("gpu")


def done(**changes):
    fields = {"lease": 1, "rows": 100, "updates": 10, "seconds": 0.2, "loss": 1.0}
    return Done(**{**fields, "skipped": 0, "metric_sums": (), **changes})


def test_a_policy_sees_the_updates_with_the_credit(worker):
    worker.update_credit = 50
    worker.resize(16, 0.0)
    worker.credit(done())
    view = worker.view()
    assert (view.device, view.teams, view.smallest, view.largest) == ("cpu", 3, 4, 64)
    assert (view.batch_size, view.updates) == (16, 60)
    assert view.seconds_per_row == pytest.approx(0.002)


def test_the_batch_trace_holds_changes_only(worker):
    for seconds, size in enumerate([8, 8, 16, 16, 1000, 64, 8]):
        worker.resize(size, seconds)
    assert worker.batch_trace.points == [(0, 8), (2, 16), (4, 64), (6, 8)]


def test_the_record_has_update_share_and_busy_time(worker):
    worker.joined_at = 1.0
    worker.credit(done())
    worker.credit(done())
    record = worker.record(seconds=2.0, all_updates=80)
    assert (record.rows, record.updates, record.update_share) == (200, 20, 0.25)
    assert record.busy == pytest.approx(0.4)
    assert worker.record(seconds=1.3, all_updates=80).busy == 1.0, "at most"


@pytest.mark.parametrize(
    ("too_large", "limits", "size"),
    [(64, (4, 57), 32), (63, (4, 56), 31), (60, (4, 54), 30), (4, (3, 3), 3), (2, (1, 1), 1)],
)
def test_limits_shrink_to_what_fits_into_memory(gpu, too_large, limits, size):
    gpu.resize(60, 0.0)
    assert gpu.shrink(too_large, 1.0)
    assert (gpu.limits, gpu.batch_size) == (limits, size)
    assert gpu.batch_trace.points == [(0.0, 60), (1.0, size)]


def test_a_gpu_that_ran_out_of_memory_evaluates_with_half_of_its_largest_batch(gpu):
    assert gpu.evaluation_batch == 64
    gpu.shrink(64, 0.0)
    assert gpu.evaluation_batch == 28
    gpu.shrink(2, 0.0)
    assert gpu.evaluation_batch == 1


def test_staleness_is_the_mean_over_merges(gpu):
    assert gpu.record(1.0, 0).staleness is None
    gpu.credit(done(updates=1, staleness=8.0))
    gpu.credit(done(updates=3, staleness=4.0))
    gpu.credit(done(updates=0, staleness=0.0))
    assert gpu.record(1.0, 4).staleness == 5.0


def test_a_cpu_worker_has_no_staleness_and_no_merges(worker):
    worker.credit(done())
    record = worker.record(1.0, 10)
    assert record.staleness is None
    assert record.merge_seconds is record.transferred is record.transfer_seconds is None


def test_a_lease_without_any_row_done_does_not_change_the_speed(gpu):
    gpu.credit(done(rows=0, updates=0, seconds=0.5))
    assert math.isnan(gpu.view().seconds_per_row)
    assert gpu.busy_seconds == 0.5
    gpu.credit(done(rows=100, seconds=0.2))
    assert gpu.view().seconds_per_row == pytest.approx(0.002)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"rows": 99}, "reported 99 rows for lease 5 of 100 rows"),
        ({"rows": 101}, "reported 101 rows for lease 5 of 100 rows"),
        ({"rows": 101, "too_large": 10}, "reported 101 rows for lease 5 of 100 rows"),
        ({"rows": 0, "too_large": 10}, None),
        ({"rows": 100, "too_large": 10}, None),
        ({"rows": 30, "too_large": 1}, "its device has no memory for a batch of one row"),
        ({"refused": 100}, None),
        ({"refused": 101}, "refused 101 merges of 100 rows"),
    ],
)
def test_an_invalid_report_of_a_lease_is_found(changes, reason):
    said = done(**{"lease": 5, **changes})
    assert HeldLease(LEASE).error_in(said) == reason


def test_a_batch_that_was_not_handed_out_cannot_be_too_large():
    assert failed_batch(LEASE, done(too_large=10**6)) == 10


def test_active_outputs_are_a_mean_over_all_updates(worker):
    assert worker.record(1.0, 1).active is None
    worker.credit(done(updates=10, active=300.0))
    worker.credit(done(updates=30, active=100.0))
    worker.credit(done(rows=0, updates=0))
    assert worker.record(1.0, 40).active == 150


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        (Limits(None, None, cpu_min_utilization=0.5), (16, 64)),
        (Limits(None, None, 0.5), (1, 64)),
        (Limits((2, 512), None, cpu_min_utilization=0.5), (2, 512)),
    ],
)
def test_the_limits_of_a_cpu_are_those_given_or_follow_its_profile(worker, given, limits):
    profile = ((64, 0.064), (32, 0.034), (16, 0.02), (8, 0.017), (1, 0.014))
    assert worker.prepare(Ready(profile), given, 10_000) is None
    assert worker.limits == limits


def test_the_smallest_batch_of_a_cpu_is_not_larger_than_its_largest(worker):
    profile = ((4096, 0.01), (1024, 0.01))  # of a worker that measured other sizes
    worker.prepare(Ready(profile), Limits(None, None, cpu_min_utilization=0.5), 10_000)
    assert worker.limits == (64, 64)


def test_the_first_lease_of_a_gpu_expects_the_speed_that_it_measured(worker, gpu):
    for each in (worker, gpu):
        each.prepare(Ready(((64, 0.128),)), Limits((4, 64), (64, 64)), 1000)
        each.resize(64, 0.0)
        each.expect_measured_speed()
    assert gpu.speed.value == pytest.approx(0.002)
    assert math.isnan(worker.speed.value)
