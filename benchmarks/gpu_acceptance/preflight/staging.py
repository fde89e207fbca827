"""Speed of staged input: batches of random rows of a set that stays on the host."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu_acceptance.preflight.gpu import Gpu
from hogbatch.data.batch import Examples, csr_inputs, dense_inputs, single_labels
from hogbatch.store import dataset
from hogbatch.store.layout import arrange
from hogbatch.store.segment import Segment
from hogbatch.workers.gathering import DeviceGathering, Gathering, HostGathering, RowSet
from hogbatch.workers.mapping import MappedSegment, MappingError
from hogbatch.workers.staged import StagedSet, stage

SET_BYTES, QUICK_SET_BYTES = 128 << 20, 1 << 18  # the caches do not hold the set
BATCH_BYTES, QUICK_BATCH_BYTES = 16 << 20, 1 << 15
SMALL_FRACTION = 0.1  # of the set that may be copied to the device: labels and row limits
CSR_FEATURES = 1 << 16


class Kind(NamedTuple):
    """Rows with `values` numbers each."""

    values: int
    sparse: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes of the numbers of a row, and of their indices."""
        return (8 if self.sparse else 4) * self.values


KINDS = {
    "10 KB rows": Kind(2560),
    "216 byte rows": Kind(54),
    "sparse rows of 100 values": Kind(100, sparse=True),
}


def measure(gpu: Gpu) -> dict[str, Any]:
    """GB/s of staging each kind of rows in both ways; see `transfers` for that of one copy."""
    by_kind: dict[str, Any] = {}
    for name, kind in KINDS.items():
        with data_segment(examples(kind, gpu.quick)) as (segment, train):
            by_kind[name] = speeds(gpu, segment, train, kind)
    return by_kind


def examples(kind: Kind, quick: bool) -> Examples:
    """Rows of random numbers."""
    rows = (QUICK_SET_BYTES if quick else SET_BYTES) // kind.row_bytes
    random = np.random.default_rng(0)
    values = random.random((rows, kind.values), np.float32)
    labels = single_labels(np.zeros(rows, np.float32))
    if not kind.sparse:
        return Examples(dense_inputs(values), labels, kind.values)
    indices = random.integers(0, CSR_FEATURES, values.shape, np.int32)
    indptr = np.arange(0, values.size + 1, kind.values, dtype=np.int64)
    return Examples(csr_inputs(indptr, indices.ravel(), values.ravel()), labels, CSR_FEATURES)


@contextmanager
def data_segment(train: Examples) -> Iterator[tuple[Segment, Examples]]:
    """The data segment of a worker, and the rows in it."""
    made = Segment.create("acceptance", arrange(dataset.fields({"train": train})))
    try:
        dataset.fill(made, {"train": train})
        made.make_read_only()
        attached = Segment.attach(os.dup(made.fd), made.layout, writable=False)
        try:
            yield attached, dataset.train_of(attached, train.features)
        finally:
            attached.close()
    finally:
        made.close()


def speeds(gpu: Gpu, segment: Segment, train: Examples, kind: Kind) -> dict[str, Any]:
    """Bytes moved, seconds of the link and GB/s, gathered by the host and by the device.

    The reason instead, if the device cannot read the host's memory.
    """
    rows = RowSet(train)
    batch = max(1, (QUICK_BATCH_BYTES if gpu.quick else BATCH_BYTES) // kind.row_bytes)
    by_host = speed(gpu, HostGathering(gpu.device, rows), train.rows, batch)
    mapped, small = MappedSegment(gpu.device, segment), SMALL_FRACTION * train.nbytes
    try:
        gathering = DeviceGathering(gpu.device, rows, mapped, small)
    except MappingError as error:
        return {"by the host": by_host, "by the device": str(error)}
    by_device = speed(gpu, gathering, train.rows, batch)
    return {"by the host": by_host, "by the device": by_device}


def speed(gpu: Gpu, gathering: Gathering, rows: int, batch: int) -> dict[str, float]:
    """All rows in random order, after a pass to warm up."""
    feed = StagedSet(gpu.device, gathering)
    feed.set_order(0, np.random.default_rng(0).permutation(rows))
    stage(feed, rows, batch)
    seconds = gpu.seconds(partial(stage, feed, rows, batch), 1)
    moved = stage(feed, rows, batch)
    feed.release()
    return {
        "bytes": moved.bytes,
        "link_seconds": moved.seconds,
        "seconds": seconds,
        "gb_per_second": moved.bytes / seconds / 1e9,
    }
