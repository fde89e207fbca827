"""Cached and staged sets provide the same rows on the device."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_array_equal

from hogbatch.kernels.gpu.device import HostDevice
from tests.support.assignments import examples
from tests.support.property_tests import max_examples
from workers.feed import CachedSet, StagedSet, feed_for

ROWS = 23
SETS = {
    f"{'CSR' if sparse else 'dense'} {'lists' if several else 'labels'}": examples(
        ROWS, sparse=sparse, several=several
    )
    for sparse in (False, True)
    for several in (False, True)
}
every_set = pytest.mark.parametrize("name", SETS)
every_feed = pytest.mark.parametrize("kind", [CachedSet, StagedSet])


def csr_rows(indptr, rows, *arrays):
    """The cells of each of `rows` in each of `arrays`."""
    return [[array[indptr[row] : indptr[row + 1]].tolist() for array in arrays] for row in rows]


def contents(inputs, labels, rows):
    """The contents of `rows`, as lists."""
    return (
        csr_rows(inputs.indptr, rows, inputs.indices, inputs.values)
        if len(inputs.indptr)
        else inputs.dense[rows].tolist(),
        csr_rows(labels.indptr, rows, labels.indices)
        if len(labels.indptr)
        else labels.values[rows].tolist(),
    )


def of(batch):
    return contents(batch.inputs, batch.labels, batch.rows)


@every_set
@every_feed
@max_examples(25)
@given(
    order=st.permutations(range(ROWS)),
    cuts=st.lists(st.sets(st.integers(0, ROWS), min_size=2, max_size=2), min_size=1, max_size=6),
)
def test_a_batch_has_the_rows_of_the_order(kind, name, order, cuts):
    train = SETS[name]
    feed, order = kind(HostDevice(), train), np.array(order)
    feed.set_order(0, order)
    for start, stop in map(sorted, cuts):
        batch = feed.batch(start, stop)
        assert len(batch.rows) == stop - start
        assert of(batch) == contents(train.inputs, train.labels, order[start:stop])
        assert_array_equal(batch.numbers, order[start:stop])


@every_set
def test_a_staged_batch_is_valid_until_the_second_next(name):
    train, order = SETS[name], np.arange(ROWS)[::-1].copy()
    feed = StagedSet(HostDevice(), train)
    feed.set_order(0, order)
    before = None
    for start, stop in [(0, 7), (7, 14), (14, 21), (21, ROWS), (0, 11), (3, 14)]:  # grows, too
        batch = feed.batch(start, stop), (start, stop)
        for each, (first, last) in filter(None, (before, batch)):
            assert of(each) == contents(train.inputs, train.labels, order[first:last])
        before = batch


@every_set
@every_feed
def test_a_slot_always_uses_the_same_arrays(kind, name):
    feed = kind(HostDevice(), SETS[name])
    feed.reserve(8)
    feed.set_order(0, np.arange(ROWS))
    seen = {}
    for start in (0, 8, 4, 9, 15):
        batch = feed.batch(start, start + 8)
        arrays = (*batch.inputs, *batch.labels, batch.rows, batch.numbers)
        places = [(array.ctypes.data, array.shape) for array in arrays]
        assert seen.setdefault(batch.slot, places) == places


@every_feed
def test_buffers_are_allocated_once(kind):
    device = HostDevice(memory_bytes=1 << 20)
    feed = kind(device, SETS["CSR lists"])
    feed.set_order(0, np.arange(ROWS))
    feed.reserve(9)
    free = device.free_bytes()
    for start in (0, 9, 14):
        feed.batch(start, start + 9)
        feed.reserve(5)
        assert device.free_bytes() == free
    feed.reserve(12)
    assert device.free_bytes() < free


def test_a_staged_set_is_usable_after_out_of_memory():
    device, train = HostDevice(memory_bytes=1 << 20), SETS["dense labels"]
    feed = StagedSet(device, train)
    feed.set_order(0, np.arange(ROWS))
    feed.reserve(4)
    four = (1 << 20) - device.free_bytes()
    device.xp.limit = 2 * four
    with pytest.raises(MemoryError):
        feed.reserve(20)
    assert of(feed.batch(3, 7)) == contents(train.inputs, train.labels, np.arange(3, 7))
    assert device.free_bytes() == four


@pytest.mark.parametrize(("needed", "kind"), [(1.0, CachedSet), (1.01, StagedSet)])
@every_set
def test_a_set_is_cached_if_it_fits(name, needed, kind):
    train = SETS[name]
    arrays = [*train.inputs, *train.labels]
    size = sum(array.nbytes for array in arrays) + 16 * ROWS  # including two orders
    reserved_bytes = 5000
    device = HostDevice(memory_bytes=reserved_bytes + int(np.ceil(size / 0.7 / needed)))
    assert type(feed_for(device, train, reserved_bytes)) is kind
    assert type(feed_for(HostDevice(), train)) is CachedSet


def test_a_cached_set_keeps_the_orders_of_two_epochs():
    device = HostDevice(memory_bytes=1 << 20)
    feed = CachedSet(device, SETS["dense labels"])
    random = np.random.default_rng(0)
    orders = [random.permutation(ROWS) for _ in range(5)]
    feed.reserve(5)
    for epoch in (0, 1):
        feed.set_order(epoch, orders[epoch])
    free = device.free_bytes()
    for epoch in (0, 1, 0, 1, 2, 1, 2, 3, 4):  # leases of two epochs in progress
        feed.set_order(epoch, orders[epoch])
        assert_array_equal(feed.rows(4, 9), orders[epoch][4:9])
        assert_array_equal(feed.batch(4, 9).rows, orders[epoch][4:9])
        assert device.free_bytes() == free


def test_the_order_of_an_epoch_is_copied_once():
    device = HostDevice()
    feed = CachedSet(device, SETS["dense labels"])
    order = np.arange(ROWS)
    feed.set_order(7, order)
    order[:] = 0  # as if overwritten by the order of epoch 9
    feed.set_order(7, order)
    assert_array_equal(feed.rows(0, ROWS), np.arange(ROWS))


def test_a_staged_set_has_no_rows_on_the_device():
    feed = StagedSet(HostDevice(), SETS["CSR labels"])
    feed.set_order(0, np.arange(ROWS))
    assert feed.rows(0, 5) is None


class Queued(HostDevice):
    """A device that copies as late as possible: when an event is waited for."""

    def __init__(self):
        super().__init__()
        self.waiting = []

    def start_copy(self, array, host):
        self.waiting.append((array, host))
        return len(self.waiting)

    def wait_event(self, event):
        self.synchronize_event(event)

    def synchronize_event(self, event):
        while event is not None and self.waiting:
            self.copy_into(*self.waiting.pop(0))


@every_set
def test_a_staged_set_waits_for_its_copies(name):
    train, order = SETS[name], np.arange(ROWS)
    feed = StagedSet(Queued(), train)
    feed.set_order(0, order)
    for start in range(0, ROWS - 6, 6):
        rows = order[start : start + 6]
        assert of(feed.batch(start, start + 6)) == contents(train.inputs, train.labels, rows)
