"""Cached and staged sets provide the same rows on the device."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_array_equal

from hogbatch.data.batch import single_labels
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.store import dataset
from hogbatch.workers import feed as feeds, gathering
from hogbatch.workers.feed import CachedSet, StagedSet, feed_for, staged_set
from hogbatch.workers.gathering import RowSet
from hogbatch.workers.mapping import MappedSegment
from tests.support.assignments import examples
from tests.support.limited_devices import Limited, Unmapped, Unpinned
from tests.support.property_tests import max_examples
from tests.support.row_sets import (
    FEEDS,
    ROWS,
    SETS,
    STAGED,
    batch_bytes,
    contents,
    feed_of,
    order_of,
    small_bytes,
    trained,
    worker_segment,
)

every_set = pytest.mark.parametrize("name", SETS)
every_feed = pytest.mark.parametrize("kind", FEEDS)
every_staged = pytest.mark.parametrize("kind", STAGED)


def of(batch):
    return contents(batch.inputs, batch.labels, batch.rows)


@every_feed
def test_a_batch_has_all_targets_of_its_rows(kind):
    targets = np.arange(3 * ROWS, dtype=np.float32).reshape(ROWS, 3)
    train = replace(SETS["dense labels"], labels=single_labels(targets.reshape(-1)))
    with feed_of(kind, train) as feed:
        feed.set_order(0, order_of())
        batch = feed.batch(2, 9)
        found = batch.labels.values.reshape(-1, 3)[batch.rows]
        assert_array_equal(found, targets[order_of()[2:9]])
        if kind in ("by the host", "by the device"):
            feed.release()
            assert feed.transfers.bytes == 7 * (8 + 4 * train.features + 4 * 3)


@every_set
@every_feed
@max_examples(25)
@given(
    order=st.permutations(range(ROWS)),
    cuts=st.lists(st.sets(st.integers(0, ROWS), min_size=2, max_size=2), min_size=1, max_size=6),
)
def test_a_batch_has_the_rows_of_the_order(kind, name, order, cuts):
    train, order = SETS[name], np.array(order)
    with feed_of(kind, train) as feed:
        feed.set_order(0, order)
        for start, stop in map(sorted, cuts):
            batch = feed.batch(start, stop)
            assert len(batch.rows) == stop - start
            assert of(batch) == contents(train.inputs, train.labels, order[start:stop])
            assert_array_equal(batch.numbers, order[start:stop])


@every_set
@every_feed
def test_a_slot_always_uses_the_same_arrays(kind, name):
    with feed_of(kind, SETS[name]) as feed:
        feed.reserve(8)
        feed.set_order(0, np.arange(ROWS))
        seen = {}
        for start in (0, 8, 4, 9, 15):
            batch = feed.batch(start, start + 8)
            feed.reserve(5)  # smaller batches use the same arrays, too
            arrays = (*batch.inputs, *batch.labels, batch.rows, batch.numbers)
            places = [(array.ctypes.data, array.shape) for array in arrays]
            assert seen.setdefault(batch.slot, places) == places


@every_staged
def test_a_staged_set_is_usable_after_out_of_memory(kind):
    device, train = Limited(1 << 20), SETS["dense labels"]
    with feed_of(kind, train, device) as feed:
        resident = (1 << 20) - device.free_bytes()
        feed.set_order(0, np.arange(ROWS))
        feed.reserve(4)
        four = (1 << 20) - device.free_bytes()
        device.xp.limit = resident + 2 * (four - resident)
        with pytest.raises(MemoryError):
            feed.reserve(20)
        assert of(feed.batch(3, 7)) == contents(train.inputs, train.labels, np.arange(3, 7))
        assert device.xp.used == four
        feed.release()
        assert device.xp.used == resident
        assert of(feed.batch(3, 7)) == contents(train.inputs, train.labels, np.arange(3, 7))


@pytest.mark.parametrize(("needed", "kind"), [(1.0, CachedSet), (1.01, StagedSet)])
@pytest.mark.parametrize("mapped", [False, True], ids=["unmapped", "mapped"])
@every_set
def test_a_set_is_cached_if_it_fits(name, needed, kind, mapped):
    train = SETS[name]
    size = train.nbytes + 16 * ROWS  # including two orders
    reserved_bytes = 5000
    device = Limited(reserved_bytes + int(np.ceil(size / 0.7 / needed)))
    with worker_segment(train) as segment:
        data = MappedSegment(device, segment) if mapped else None
        shared = dataset.sets_of(segment, train.features)["train"]
        assert type(feed_for(device, shared, reserved_bytes, data)) is kind
        assert type(feed_for(HostDevice(), shared, data=data)) is CachedSet


def test_a_cached_set_copies_the_order_of_an_epoch_once_and_keeps_two():
    device, train = Limited(1 << 20), SETS["dense labels"]
    feed, copied = CachedSet(device, train), []
    feed.reserve(5)
    free = device.free_bytes()
    for epoch in (0, 1, 0, 1, 2, 1, 2, 3, 4):  # leases of two epochs in progress
        order = order_of(epoch)
        feed.set_order(epoch, order)
        copied.append((feed.transfers.bytes - train.nbytes) // (8 * ROWS))  # earlier ones
        assert_array_equal(feed.rows(4, 9), order[4:9])
        assert_array_equal(feed.batch(4, 9).rows, order[4:9])
        assert device.free_bytes() == free
    assert copied == [0, 1, 2, 2, 2, 3, 3, 3, 4]
    assert feed.transfers.seconds > 0


# Transfers --------------------------------------------------------------------------------------


@every_set
@every_staged
def test_the_bytes_of_staged_batches_are_counted(kind, name):
    train, order = SETS[name], order_of()
    with feed_of(kind, train) as feed:
        feed.set_order(0, order)
        for size in (7, 10):  # neither divides the number of rows
            feed.transfers.take()
            parts = [order[start : start + size] for start in range(0, ROWS, size)]
            for start in range(0, ROWS, size):
                feed.batch(start, min(start + size, ROWS))
            feed.release()
            moved = feed.transfers.take()
            assert moved.bytes == sum(batch_bytes(kind, train, rows) for rows in parts)
            assert moved.seconds > 0
        assert (feed.transfers.bytes, feed.transfers.seconds) == (0, 0.0)


# Choice of the gathering ------------------------------------------------------------------------


@every_set
def test_small_arrays_are_copied_in_advance_and_counted(name):
    train = SETS[name]
    with worker_segment(train) as segment:
        shared, device = dataset.sets_of(segment, train.features)["train"], HostDevice()
        small = small_bytes(RowSet(shared))
        feed = staged_set(device, shared, MappedSegment(device, segment), small)
        assert feed.transfers.bytes == small
        assert feed.transfers.seconds > 0
        feed.set_order(0, order_of())
        assert of(feed.batch(3, 9)) == contents(train.inputs, train.labels, order_of()[3:9])


def refuse(self):
    raise PermissionError("no second mapping")


@pytest.mark.parametrize("device", [Unmapped, Unpinned, HostDevice])
@every_set
def test_the_host_gathers_what_the_device_cannot_read(name, device, monkeypatch, caplog):
    caplog.set_level("INFO")
    train, device = SETS[name], device()
    with worker_segment(train) as segment:
        if type(device) is HostDevice:
            monkeypatch.setattr(type(segment), "map_for_device", refuse)
        shared = dataset.sets_of(segment, train.features)["train"]
        feed = staged_set(device, shared, MappedSegment(device, segment), 1e9)
        feed.set_order(0, order_of())
        assert of(feed.batch(0, 9)) == contents(train.inputs, train.labels, order_of()[:9])
        feed.release()
        assert feed.transfers.bytes == batch_bytes("by the host", train, order_of()[:9])
    assert "the host gathers the rows of batches: " in caplog.text


def test_the_data_are_mapped_once_for_both_sets(monkeypatch):
    monkeypatch.setattr(feeds, "MAX_MEMORY_FRACTION", 0.0)
    built, build = [], gathering.DeviceGathering.__init__

    def count(self, device, rows, data, capacity):
        built.append(data)
        build(self, device, rows, data, capacity)

    monkeypatch.setattr(gathering.DeviceGathering, "__init__", count)
    trained(examples(600), examples(50, seed=1))
    assert len(built) == 2 and built[0] is built[1]


# Order of the work ------------------------------------------------------------------------------


class Recorder(HostDevice):
    """A device that records its events by number, with the stream that they are recorded in."""

    def __init__(self):
        super().__init__()
        self.log, self.stream, self.times = [], "train", []

    def record_event(self):
        self.times.append(super().record_event())
        self.log.append(("record", self.stream, len(self.times) - 1))
        return len(self.times) - 1

    def wait_event(self, event):
        self.log.append(("wait", self.stream, event))

    def synchronize_event(self, event):
        self.log.append(("block", "host", event))

    def synchronize(self):
        self.log.append(("finish", self.stream, None))

    def elapsed(self, start, end):
        return super().elapsed(self.times[start], self.times[end])

    def queue_copy(self, array, host):
        self.copy_into(array, host)
        self.log.append(("copy", self.stream, None))

    def copy_stream(self):
        return self

    def __enter__(self):
        self.stream = "copy"

    def __exit__(self, *_):
        self.stream = "train"


@every_staged
def test_the_next_batch_is_copied_while_the_device_trains(kind):
    """The copies of batch n wait for training on batch n - 2; the host waits for no training."""
    device = Recorder()
    with feed_of(kind, SETS["dense lists"], device) as feed:
        feed.set_order(0, np.arange(ROWS))
        feed.reserve(3)
        device.log.clear()
        waits, recorded = [], {}
        for number in range(6):
            feed.batch(3 * number, 3 * number + 3)
            recorded[device.log[0][2]] = number  # after training on all batches before this one
            waited = [each for how, stream, each in device.log if (how, stream) == ("wait", "copy")]
            waits.append([recorded[each] for each in waited])
            blocked = [event for how, _, event in device.log if how == "block"]
            assert not set(blocked) & set(recorded)
            assert device.log[-1][:2] == ("wait", "train")  # training waits for the copies
            assert device.log[-2] == ("record", "copy", device.log[-1][2])
            device.log.clear()
        assert waits == [[], [0], [1], [2], [3], [4]]


@every_staged
def test_memory_is_freed_when_no_stream_uses_it(kind):
    device = Recorder()
    with feed_of(kind, SETS["dense lists"], device) as feed:
        feed.set_order(0, np.arange(ROWS))
        feed.reserve(3)

        def fail(*_):
            raise MemoryError("to load the code")

        device.queue_copy = fail  # the copies queued before may be in progress
        with pytest.raises(MemoryError):
            feed.batch(0, 3)
        device.log.clear()
        feed.release()
        finished = [stream for how, stream, _ in device.log if how == "finish"]
        assert sorted(finished) == ["copy", "train"]
