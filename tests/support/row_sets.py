"""Sets of rows in a segment, as a coordinator provides them: contents, feeds, and training."""

import os
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.store import dataset
from hogbatch.store.layout import arrange
from hogbatch.store.segment import Segment
from hogbatch.workers.feed import CachedSet, StagedSet
from hogbatch.workers.gathering import DeviceBuffer, DeviceGathering, HostBuffer, RowSet
from hogbatch.workers.mapping import MappedSegment
from tests.support.assignments import assignment, examples
from tests.support.gpu_engine_driver import Rehearsal, epochs

ROWS = 23
SETS = {  # with rows that have no values, and no labels; CSR rows have weights
    f"{'CSR' if sparse else 'dense'} {'lists' if several else 'labels'}": examples(
        ROWS, sparse=sparse, several=several, stored=0.1, weighted=sparse
    )
    for sparse in (False, True)
    for several in (False, True)
}
STAGED = ["by the host", "by the device", "by the device, small arrays there"]
FEEDS = ["cached", *STAGED]


@contextmanager
def worker_segment(train, test=None):
    """The data segment of a worker, with these sets."""
    sets = {"train": train} if test is None else {"train": train, "test": test}
    sizes = {name: rows.sizes for name, rows in sets.items()}
    made = Segment.create("data", arrange(dataset.fields(sizes)))
    dataset.fill(made, [sets])
    attached = Segment.attach(os.dup(made.fd), made.layout, writable=False)
    try:
        yield attached
    finally:
        made.close()
        attached.close()


@contextmanager
def feed_of(kind, train, device=None):
    """A feed of `train`, one of FEEDS."""
    device = device or HostDevice()
    with worker_segment(train) as segment:
        shared = dataset.sets_of(segment, train.features)["train"]
        if kind == "cached":
            yield CachedSet(device, shared)
        else:
            rows = RowSet(shared)
            yield StagedSet(device, gathering_of(kind, device, rows, segment))


def gathering_of(kind, device, rows, segment):
    if kind == "by the host":
        return partial(HostBuffer, device, rows)
    capacity = small_bytes(rows) if kind.endswith("there") else 0
    gathering = DeviceGathering(device, rows, MappedSegment(device, segment), capacity)
    return partial(DeviceBuffer, gathering)


def small_bytes(rows):
    """Bytes of all arrays except the largest one."""
    sizes = [array.nbytes for array in rows.flat]
    return sum(sizes) - max(sizes)


def contents(inputs, labels, rows):
    """The contents of `rows`, as lists."""
    return (
        _lists(inputs.indptr, rows, inputs.indices, inputs.values)
        if len(inputs.indptr)
        else inputs.dense[rows].tolist(),
        _lists(labels.indptr, rows, labels.indices)
        if len(labels.indptr)
        else labels.values[rows].tolist(),
        labels.weights[rows].tolist() if len(labels.weights) else [],
    )


def _lists(indptr, rows, *arrays):
    """The cells of each of `rows` in each of `arrays`."""
    return [[array[indptr[row] : indptr[row + 1]].tolist() for array in arrays] for row in rows]


def batch_bytes(kind, train, rows):
    """Bytes that a batch of `rows` moves to the device, counted from its contents."""
    features, labels, weights = contents(train.inputs, train.labels, rows)
    lists = len(train.labels.indptr) > 0
    cells = 4 * sum(len(row[0]) for row in features) if train.sparse else 0
    listed = 4 * sum(len(row[0]) for row in labels) if lists else 0
    # The device reads the start and the end of each row, and the host sends a new indptr.
    indptr = 8 * (len(rows) + 1) if kind == "by the host" else 16 * len(rows)
    arrays = [
        *(0 if train.sparse else 4 * train.features * len(rows), indptr * train.sparse),
        *(cells, cells, 0 if lists else 4 * len(rows), indptr * lists, listed, 4 * len(weights)),
    ]
    if kind.endswith("there"):  # all except the largest one
        sizes = [array.nbytes for array in (*train.inputs, *train.labels)]
        arrays = [arrays[max(range(8), key=lambda place: (sizes[place], place))]]
    return 8 * len(rows) + sum(arrays)


def order_of(seed=0):
    return np.random.default_rng(seed).permutation(ROWS)


def trained(train, test=None, device=None):
    """The shared parameters after some epochs with the data in a segment."""
    with worker_segment(train, test) as segment:
        given = assignment(train, test, merge_every=2, optimizer="adagrad")
        given = replace(given, sets=dataset.sets_of(segment, train.features), data=segment)
        leases = epochs(2)
        reports = Rehearsal(given, leases, device or HostDevice()).hear(len(leases))
        assert [report.rows for report in reports] == [one.stop - one.start for one in leases]
        return given.model.params
