import math

import pytest

from hogbatch.coordinator.worker import Lease, Worker
from hogbatch.wire.messages import Done


@pytest.fixture
def worker():
    return Worker(
        key="a",
        number=3,
        name="cpu-0",
        device="cpu",
        threads=2,
        pid=1,
        fence=7,
        last_seen=0.0,
        limits=(4, 64),
    )


def done(**changes):
    fields = {"lease": 1, "rows": 100, "updates": 10, "seconds": 0.2, "loss": 1.0}
    return Done(**{**fields, "skipped": 0, "hits": (), **changes})


def test_a_lease_taken_is_a_lease_held(worker):
    lease = Lease(5, "train", 100, 200, 10)
    work = worker.take(lease, epoch=2, learning_rate=0.25)
    assert worker.leases == {5: lease}
    assert (work.lease, work.task, work.epoch, work.start, work.stop) == (5, "train", 2, 100, 200)
    assert (work.batch_size, work.learning_rate, work.fence) == (10, 0.25, 7)


def test_a_policy_sees_the_updates_with_the_head_start(worker):
    worker.head_start = 50
    worker.resize(16, 0.0)
    worker.add(done())
    view = worker.view()
    assert (view.device, view.threads, view.smallest, view.largest) == ("cpu", 2, 4, 64)
    assert (view.batch_size, view.updates) == (16, 60)
    assert view.seconds_per_row == pytest.approx(0.002)


@pytest.mark.parametrize(
    ("wanted", "size"),
    [
        (16, 16),
        (0, 4),
        (-(10**9), 4),
        (10**30, 64),
        (17.9, 17),
        (math.inf, 64),
        (-math.inf, 4),
        (math.nan, 4),
    ],
)
def test_whatever_a_policy_wants_is_a_whole_number_within_the_limits(worker, wanted, size):
    worker.resize(wanted, 0.0)
    assert worker.batch_size == size
    assert isinstance(worker.batch_size, int)


def test_the_batch_trace_holds_changes_only(worker):
    for seconds, size in enumerate([8, 8, 16, 16, 1000, 64, 8]):
        worker.resize(size, seconds)
    assert worker.batch_trace == [(0, 8), (2, 16), (4, 64), (6, 8)]


def test_the_record_tells_share_and_busy_time(worker):
    worker.joined_at = 1.0
    worker.add(done())
    worker.add(done())
    record = worker.record(seconds=2.0, all_updates=80)
    assert (record.rows, record.updates, record.update_share) == (200, 20, 0.25)
    assert record.busy == pytest.approx(0.4)


def test_a_head_start_is_no_work_of_ones_own(worker):
    worker.head_start = 1000
    assert worker.record(1.0, 100).updates == 0
    assert worker.record(1.0, 100).update_share == 0


def test_nobody_is_more_than_busy(worker):
    worker.add(done(seconds=5.0))
    assert worker.record(seconds=4.9, all_updates=10).busy == 1.0


def test_a_record_before_the_first_second_and_update_is_all_zero(worker):
    record = worker.record(0.0, 0)
    assert (record.update_share, record.busy) == (0.0, 0.0)
