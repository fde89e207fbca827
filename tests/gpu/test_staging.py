"""Staged batches on a GPU: a buffer that is read or written too early gives other numbers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.data.batch import Inputs, Labels
from hogbatch.store import dataset
from hogbatch.workers import feed
from hogbatch.workers.feed import StagedSet, staged_set
from hogbatch.workers.gathering import RowSet
from hogbatch.workers.mapping import MappedSegment, MappingError
from tests.support.assignments import examples
from tests.support.gpu_engine_driver import ROWS as ENGINE_ROWS
from tests.support.pairs import pairs
from tests.support.row_sets import (
    FEEDS,
    SETS,
    STAGED,
    contents,
    feed_of,
    gathering_of,
    order_of,
    trained,
    worker_segment,
)

pytestmark = pytest.mark.gpu


class Training:
    """Reads batches as training does: queued in the thread's stream, without waiting for it."""

    def __init__(self, device):
        self.device = device
        self.seen = []

    def read(self, batch):
        parts = *batch.inputs, *batch.labels, batch.rows, batch.numbers
        copies = [self.device.empty(part.shape, part.dtype) for part in parts]
        for copy, part in zip(copies, parts, strict=True):
            self.device.xp.copyto(copy, part)
        self.seen.append(copies)

    def contents(self):
        """The contents and the row numbers of all batches read."""
        self.device.synchronize()
        for copies in self.seen:
            host = [np.empty(copy.shape, copy.dtype) for copy in copies]
            for copy, part in zip(copies, host, strict=True):
                self.device.to_host(copy, part)
            *arrays, rows, numbers = host
            yield contents(Inputs(*arrays[:4]), Labels(*arrays[4:]), rows), numbers


def assert_stages(feed, device, train, orders, sizes, after_each=lambda: None):
    """Check all batches of the `orders`, which are read long after the last one was requested."""
    training, expected = Training(device), []
    for epoch, order in enumerate(orders):
        feed.set_order(epoch, order)
        for size in sizes:
            for start in range(0, len(order), size):
                rows = order[start : start + size]
                training.read(feed.batch(start, start + len(rows)))
                after_each()
                expected.append((contents(train.inputs, train.labels, rows), rows))
    for (found, numbers), (right, rows) in zip(training.contents(), expected, strict=True):
        assert found == right
        assert_array_equal(numbers, rows)


@pairs(kind=FEEDS, name=list(SETS))
def test_batches_have_the_rows_of_the_order(cuda, kind, name):
    train = SETS[name]
    with feed_of(kind, train, cuda) as feed:
        feed.reserve(7)
        assert_stages(feed, cuda, train, [order_of(0), order_of(1)], [7, 3, 7, 10])


@pairs(kind=STAGED, name=list(SETS))
def test_copies_wait_for_the_training_on_their_buffer(cuda, kind, name):
    train = SETS[name]
    with feed_of(kind, train, cuda) as feed:
        feed.reserve(5)
        # The host waits for the copies before it waits for the training on earlier batches.
        assert_stages(feed, cuda, train, [order_of()], [5, 4], after_each=feed.finish)


@pytest.mark.parametrize("kind", STAGED)
def test_released_buffers_are_no_longer_written(cuda, kind):
    train = SETS["CSR lists"]
    with feed_of(kind, train, cuda) as feed:
        feed.set_order(0, order_of())
        feed.batch(0, 9)
        feed.release()
        there = cuda.to_device(np.zeros(10_000, np.float32))  # may get the memory of the buffers
        assert_stages(feed, cuda, train, [order_of(2)], [11])
        seen = np.ones(10_000, np.float32)
        cuda.to_host(there, seen)
        assert not seen.any()


def test_data_that_cannot_be_pinned_are_gathered_by_the_host(cuda, monkeypatch):
    train = SETS["CSR labels"]

    def refuse(*_):
        raise cuda.xp.cuda.runtime.CUDARuntimeError(801)  # not supported

    monkeypatch.setattr(cuda.xp.cuda.runtime, "hostRegister", refuse)
    with worker_segment(train) as segment:
        rows = RowSet(dataset.sets_of(segment, train.features)["train"])
        with pytest.raises(MappingError, match="cannot pin"):
            gathering_of("by the device", cuda, rows, segment)
        feed = staged_set(cuda, train, MappedSegment(cuda, segment), capacity=1e9)
        assert isinstance(feed, StagedSet)
        assert_stages(feed, cuda, train, [order_of()], [6, 11])


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_worker_trains_on_staged_rows_as_on_cached_rows(
    make_cuda, sparse, monkeypatch, tmp_path, caplog
):
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))
    caplog.set_level("INFO")
    train, test = examples(ENGINE_ROWS, sparse=sparse), examples(50, sparse=sparse, seed=1)
    cached = trained(train, test, make_cuda())
    monkeypatch.setattr(feed, "MAX_MEMORY_FRACTION", 0.0)
    staged = trained(train, test, make_cuda())
    assert "the host gathers" not in caplog.text
    assert_allclose(staged, cached, atol=1e-5)
