"""The exchange of changes between the device and the shared parameters."""

import queue
import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.kernels.contract import LOSS
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.wire.messages import Failed, Lease
from hogbatch.workers.exchange import Interval, IntervalEvents, LeaseProgress, ReplicaExchange
from hogbatch.workers.replica import Replica
from tests.support.assignments import shared_model
from tests.support.limited_devices import Clocked
from tests.unit.workers.conftest import WITHIN_S

PARAMETERS, FENCE = 16, 5


class Rig:
    """An exchange; the test acts as its training thread, the other workers and the session.

    A lease of `intervals` times ten rows changes all parameters by `change` in each of them.
    """

    def __init__(self, damping="off", device=None):
        self.model, self.fence = shared_model(PARAMETERS), np.full(8, FENCE)
        self.model.params[:] = np.arange(PARAMETERS)
        self.replica = Replica(device or HostDevice(), self.model, "delta")
        self.replica.exchange_all()
        self.posts = queue.SimpleQueue()
        self.observed, self.waiting = [], lambda: None
        self.exchange = ReplicaExchange(
            self.replica,
            self.model,
            self.fence,
            damping,
            self.observed.append,
            self.posts.put,
        )
        self.leases = 0
        self.exchange.start()

    def lease(self, intervals=1):
        """The intervals of one lease."""
        self.leases += 1
        rows = 10 * intervals
        work = Lease(self.leases, "train", 0, 100, 100 + rows, 10, 0.1, FENCE)
        progress = LeaseProgress(work, began=0.0, rows=rows)
        starts = range(100, 100 + rows, 10)
        return [Interval(progress, at, at + 10, at + 10 == work.stop) for at in starts]

    def begin(self):
        self.replica.begin(None)
        self.exchange.before_pull()
        self.begun = self.replica.device.record_event()

    def train(self, change, loss=0.0):
        self.replica.params += np.float32(change)
        self.replica.totals[LOSS] += loss

    def hand_over(self, interval, *, wait=True):
        """Complete an interval, and wait until it has been exchanged."""
        record_event = self.replica.device.record_event
        trained, ended = record_event(), record_event()
        self.waiting()
        before = self.begun, trained, ended, record_event()
        self.begun = self.replica.hand_over(None)
        self.exchange.submit(interval, IntervalEvents(*before, self.begun))
        return self.exchange.wait() if wait else None

    def others_update(self, times, change=0.0):
        self.model.params[:] += np.float32(change)
        self.model.steps[0] += times

    def heard(self):
        return self.posts.get(timeout=WITHIN_S)


@pytest.fixture
def rig():
    return Rig()


def test_a_lease_is_reported_after_its_last_merge(rig):
    start, intervals = rig.model.params.copy(), rig.lease(3)
    rig.begin()
    for number, interval in enumerate(intervals, 1):
        assert rig.posts.empty()
        rig.train(2, loss=1.5)
        assert rig.hand_over(interval)
        assert_array_equal(rig.model.params, start + 2 * number)
    done = rig.heard()
    assert (done.lease, done.rows, done.updates, done.loss) == (1, 30, 3, 4.5)
    assert (done.skipped, done.refused, done.too_large, done.staleness) == (0, 0, 0, 0)
    assert done.seconds > 0 and rig.model.merges[0] == 3


def test_staleness_counts_updates_of_others_between_pull_and_merge(rig):
    one, two, three = rig.lease(3)
    rig.others_update(7)  # before the pull: known to the replica
    rig.begin()
    rig.others_update(3)
    rig.hand_over(one)  # staleness 3; fetches with 3 updates by others
    rig.model.merges[0] += 2  # another GPU worker
    rig.hand_over(two)  # trained from the first pull: 3 + 2; fetches with 5 updates by others
    rig.others_update(4)
    rig.hand_over(three)  # trained from the fetch of `one`: 2 + 4
    assert rig.heard().staleness == pytest.approx((3 + 5 + 6) / 3)


def test_the_pull_of_an_interval_is_recorded_before_the_next_fetch(rig):
    one, two, three = rig.lease(3)
    jobs, done = rig.exchange._jobs, rig.exchange.outcomes

    class Prompt:
        """The exchange thread finishes before `submit` continues."""

        get = jobs.get

        def put(self, taken):
            jobs.put(taken)
            done.put(done.get(timeout=WITHIN_S))

    rig.begin()
    rig.exchange._jobs = Prompt()
    rig.others_update(3)
    rig.hand_over(one)
    rig.hand_over(two)  # trained from the first pull
    rig.hand_over(three)
    assert rig.heard().staleness == pytest.approx((3 + 3 + 0) / 3)


@pytest.mark.parametrize(("damping", "weight"), [("off", 1.0), ("root", 13**-0.5)])
def test_damping_weights_a_change_by_its_staleness(damping, weight):
    rig = Rig(damping)
    start, (interval,) = rig.model.params.copy(), rig.lease()
    rig.begin()
    rig.train(8)
    rig.others_update(12, change=64)
    rig.hand_over(interval)
    assert_allclose(rig.model.params, start + 64 + 8 * weight)


def test_a_change_that_is_not_finite_is_refused_and_its_rows_are_skipped(rig):
    start, (good, bad, after) = rig.model.params.copy(), rig.lease(3)
    rig.begin()
    rig.train(1, loss=2.0)
    assert rig.hand_over(good)
    rig.train(np.nan, loss=np.nan)
    assert not rig.hand_over(bad)
    assert_array_equal(rig.model.params, start + 1)
    rig.exchange.skip(after)
    assert rig.exchange.wait()
    done = rig.heard()
    assert (done.rows, done.updates, done.skipped, done.refused) == (30, 1, 20, 1)
    assert done.loss == 2.0
    assert rig.model.merges[0] == 1
    assert len(rig.observed) == 2  # the skipped interval is not observed


class Slow(HostDevice):
    """Calls `meanwhile` while a thread waits for the device."""

    def __init__(self):
        super().__init__()
        self.meanwhile = lambda: None

    def synchronize_event(self, event):
        self.meanwhile()


def test_a_fence_raised_while_waiting_for_the_device_prevents_the_merge():
    rig = Rig(device=Slow())
    (interval,), start = rig.lease(), rig.model.params.copy()
    rig.begin()
    rig.train(1)

    def revoke():
        rig.fence[0] += 1

    rig.replica.device.meanwhile = revoke
    rig.hand_over(interval)
    assert_array_equal(rig.model.params, start)
    assert rig.heard() == Failed("lease 1 was revoked after 0 rows")


class Waiting(HostDevice):
    """Records the calls that wait for a real device."""

    def __init__(self, adds):
        super().__init__()
        self.waits, self._adds = [], adds

    def mapped(self, array):
        return array if self._adds else None

    def queue_copy(self, array, host):
        array[...] = host

    def __getattribute__(self, name):
        if name in ("synchronize", "synchronize_event", "to_host", "copy_into", "to_device"):
            self.waits.append(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    ("adds", "waits"), [(True, 2), (False, 3)], ids=["by the device", "by the host"]
)
def test_a_merge_waits_for_the_change_and_for_its_end(adds, waits):
    """Where the host adds, it also waits for the copy of the change."""
    rig = Rig(device=Waiting(adds))
    one, two = rig.lease(2)
    rig.begin()
    rig.hand_over(one)
    rig.replica.device.waits.clear()
    rig.hand_over(two)
    assert rig.replica.device.waits == ["synchronize_event"] * waits


def test_updates_during_a_fetch_count_as_stale(rig):
    one, two, three = rig.lease(3)
    fetch = rig.replica.fetch

    def overtaken():
        fetch()
        rig.others_update(5)

    rig.begin()
    rig.replica.fetch = overtaken
    for interval in (one, two, three):  # the last was trained from the fetch of `one`
        rig.hand_over(interval)
    assert rig.heard().staleness == pytest.approx((0 + 5 + 10) / 3)


def test_seconds_are_counted_from_the_previous_report(rig):
    first, second = rig.lease(), rig.lease()
    rig.begin()
    rig.hand_over(first[0])
    since_ever = rig.heard().seconds  # its lease began at 0, long before this process
    rig.hand_over(second[0])
    assert 0 < rig.heard().seconds < since_ever


class Pulling(Clocked):
    """A device that takes changes in a quarter of a second, and pulls in a second."""

    def __init__(self):
        super().__init__(hand_over=0.25)

    def copy_into(self, array, host):
        self.clock += 1.0
        super().copy_into(array, host)

    def mapped(self, array):
        return None


def test_the_times_of_an_interval_are_observed_and_reported():
    rig = Rig(device=Pulling())
    device, (one, two) = rig.replica.device, rig.lease(2)
    rig.begin()
    rig.replica.transfers.take()

    def waiting():  # for the merge before
        device.clock += 0.5

    rig.waiting = waiting
    for interval in (one, two):
        rig.train(1)
        device.clock += 4.0
        rig.hand_over(interval)
        device.clock += 32  # until the exchange thread is done; of the next interval
        rig.begun = device.clock
    for times in rig.observed:
        assert (times.batch_size, times.rows, times.training) == (10, 10, 4.0)
        assert times.cost.blocking == 0.25 and 0 < times.cost.background < WITHIN_S
        assert times.alone
    done = rig.heard()
    assert done.merge_seconds == 2 * (0.5 + 0.25)
    assert done.transferred == 2 * 2 * 4 * PARAMETERS  # change and pull
    assert done.transfer_seconds == 2 * 1.0  # a copy to the host takes no time here
    (next_interval,) = rig.lease()
    rig.others_update(1)
    rig.hand_over(next_interval)
    assert rig.heard().transferred == 2 * 4 * PARAMETERS
    assert not rig.observed[-1].alone


class Absent(HostDevice):
    """A device that a thread cannot use."""

    def enter(self):
        raise RuntimeError("the device is gone")


def test_an_exception_of_the_exchange_thread_is_raised_in_the_training_thread():
    rig = Rig(device=Absent())
    (interval,) = rig.lease()
    rig.begin()
    rig.hand_over(interval, wait=False)
    heard = queue.SimpleQueue()

    def wait():
        try:
            rig.exchange.wait()
        except RuntimeError as error:
            heard.put(str(error))

    threading.Thread(target=wait, daemon=True).start()  # it may wait forever
    assert heard.get(timeout=WITHIN_S) == "the device is gone"
