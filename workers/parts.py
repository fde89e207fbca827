"""The parts of a replica: how ranges of the parameters are exchanged with the shared parameters.

Their methods do for a part what those of :class:`hogbatch.workers.replica.Replica` do for all
parameters. The exchange thread calls `merge` and `fetch`, the training thread the other methods.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs
from hogbatch.kernels.gpu.device import Device
from hogbatch.store.merge import DAMPING_SCALE, MergeRule
from hogbatch.workers.transfers import Transfers

HostFloats = NDArray[np.float32]
REPETITIONS = 3  # of a measurement; the fastest is used, because noise only slows down
TRIAL_WEIGHT = 0.5  # of a merge that is measured: weights below 1 need a multiplication


class FlatPart:
    """A contiguous range of the parameters, exchanged as a whole.

    `params`[P] is on the device, `shared`[P] on the host. If the rule is additive and the memory
    `pinned`, the device adds the change to the host's memory, and pulls in the same operation. Else
    the change is copied and the host merges it. With `per_weight`, the device adds less to the
    parameters that others have changed since the change was computed
    (:func:`hogbatch.store.merge.stale_weight`).
    """

    def __init__(
        self,
        device: Device,
        params: Any,
        shared: HostFloats,
        rule: MergeRule,
        transfers: Transfers,
        *,
        pinned: bool,
        per_weight: bool = False,
    ) -> None:
        self._device = device
        self._params = params
        self._shared = shared
        self._rule = rule
        self._transfers = transfers
        self._pinned = pinned
        # `seen`: the base of the interval whose change was taken last, with what was added of the
        # change before in place of that change.
        self._base, self._seen, self._change, self._pulled = (
            device.zeros(params.size, np.float32) for _ in range(4)
        )
        self._mapped = device.mapped(shared) if rule.additive and pinned else None
        self._buffer = device.pinned(0 if self._adds else shared.size, np.float32)
        self._scale = DAMPING_SCALE if per_weight and self._adds else 0.0
        # What was queued and is not counted yet: bytes, and the events of its start and end.
        self._queued: tuple[int, Any, Any] | None = None

    @property
    def _adds(self) -> bool:
        """Whether the device adds the change."""
        return self._mapped is not None

    @property
    def damps(self) -> bool:
        """Whether changes are damped by weights."""
        return self._scale > 0

    def begin(self, rows: Any) -> None:
        self.refresh()

    def refresh(self) -> None:
        self.fetch()
        self._device.xp.copyto(self._params, self._pulled)
        self._device.xp.copyto(self._base, self._pulled)
        self._seen.fill(0)

    def hand_over(self, rows: Any, finite: Any) -> None:
        arrays = self._pulled, self._params, self._base, self._seen, self._change
        self._device.kernels.hand_over(*arrays, finite)

    def discard(self) -> None:
        self._device.xp.copyto(self._params, self._base)

    def reset(self) -> None:
        self._params.fill(0)
        self._base.fill(0)

    def merge(self, fraction: float) -> None:
        self._merge_into(self._shared, self._mapped, fraction)

    def fetch(self) -> None:
        """Pull, unless `merge` has done so, and wait until it is done."""
        if self._queued is None:
            copy = self._device.queue_copy if self._pinned else self._device.copy_into
            self._queue(self._shared.nbytes, partial(copy, self._pulled, self._shared))
        assert self._queued is not None
        nbytes, start, end = self._queued
        self._device.synchronize_event(end)
        self._transfers.add(nbytes, self._device.elapsed(start, end))
        self._queued = None

    def measure_merge(self) -> float:
        """Seconds of `merge` and `fetch` for the change taken last; merges into other memory."""
        trial, mapped = self._device.visible(self._shared.size, np.float32)

        def merge_and_fetch() -> None:
            self._merge_into(trial, mapped if self._adds else None, TRIAL_WEIGHT)
            self.fetch()

        return fastest(self._device, merge_and_fetch)

    def _merge_into(self, shared: HostFloats, mapped: Any, fraction: float) -> None:
        if mapped is None:
            # `_base` is the replica when the change was taken.
            source = self._change if self._rule.additive else self._base
            copy = partial(self._device.queue_to_host, source, self._buffer)
            count_transfer(self._device, self._transfers, shared.nbytes, copy)
            self._rule.merge(shared, self._buffer, fraction)
        else:
            arrays = self._seen, self._change, mapped, self._pulled
            add = partial(self._device.kernels.add, fraction, self._scale, *arrays)
            self._queue(2 * shared.nbytes, add)  # it is read and written

    def _queue(self, nbytes: int, work: Callable[[], None]) -> None:
        start = self._device.record_event()
        work()
        self._queued = nbytes, start, self._device.record_event()


class _RowTable(NamedTuple):
    """The arrays of one exchanged table, all [F, H]."""

    params: Any  # on the device
    shared: HostFloats
    mapped: Any  # `shared` as the device sees it
    base: Any
    change: Any


class TouchedRowsPart:
    """The weights of a wide sparse layer; only the rows touched by an interval are exchanged.

    The device reads and writes them in host memory. `tables` are (params, shared, mapped) of the
    weights and of the slots exchanged with them. The other rows of the replica are outdated and are
    not read.
    """

    def __init__(
        self,
        device: Device,
        inputs: Inputs,
        tables: Sequence[tuple[Any, HostFloats, Any]],
        transfers: Transfers,
    ) -> None:
        self._device = device
        self._inputs = inputs
        self._transfers = transfers
        self._pulls: list[tuple[Any, Any, Any]] = []  # not counted yet: start, end, rows
        self._tables = []
        for params, shared, mapped in tables:
            base, change = (device.empty(params.shape, np.float32) for _ in range(2))
            device.xp.copyto(base, params)
            self._tables.append(_RowTable(params, shared, mapped, base, change))
        features = len(self._tables[0].params)
        self._head = device.xp.full(features, -1, np.int32)
        # Two lists of touched rows and their lengths: for the current interval, and for the one
        # that is being exchanged or starts next.
        self._lists = [
            (device.empty(features, np.int32), device.zeros(1, np.int32)) for _ in range(2)
        ]

    @property
    def touched(self) -> int:
        """The number of rows that the current interval touches."""
        return self._number(self._lists[0][1])

    def begin(self, rows: Any) -> None:
        self._find(rows)
        self._lists.reverse()

    def refresh(self) -> None:
        for table in self._tables:
            copy = partial(self._device.queue_copy, table.params, table.shared)
            count_transfer(self._device, self._transfers, table.shared.nbytes, copy)
            self._device.xp.copyto(table.base, table.params)

    def hand_over(self, rows: Any, finite: Any) -> None:
        if rows is not None:
            self._find(rows)
        for params, _, _, base, change in self._tables:
            self._device.kernels.take_rows(*self._lists[0], params, base, change, finite)
        self._lists.reverse()

    def discard(self) -> None:
        for table in self._tables:
            self._device.xp.copyto(table.params, table.base)

    def reset(self) -> None:
        for table in self._tables:
            table.params.fill(0)
            table.base.fill(0)
        self._pulls.clear()

    def merge(self, fraction: float) -> None:
        touched, found = self._lists[1]

        def add() -> None:
            for table in self._tables:
                self._device.kernels.add_rows(fraction, touched, found, table.change, table.mapped)

        # The rows are read and written.
        count_transfer(self._device, self._transfers, 2 * self._bytes(self._number(found)), add)

    def fetch(self) -> None:
        """Only count transfers: `begin` and `hand_over` have pulled the rows that they need."""
        for start, end, found in self._pulls:
            seconds = self._device.elapsed(start, end)
            self._transfers.add(self._bytes(self._number(found)), seconds)
        self._pulls.clear()

    def measure_merge(self) -> float:
        found = self._lists[1][1]
        rows = max(1, self._number(found))
        # The changes are added to separate memory that only has these rows.
        touched = self._device.to_device(np.arange(rows, dtype=np.int32))
        shapes = [(rows, table.params.shape[1]) for table in self._tables]
        trials = [self._device.visible(shape, np.float32) for shape in shapes]

        def add() -> None:
            for table, (_, target) in zip(self._tables, trials, strict=True):
                add_rows = self._device.kernels.add_rows
                add_rows(TRIAL_WEIGHT, touched, found, table.change, target)
            self._device.synchronize()

        return fastest(self._device, add)

    def _find(self, rows: Any) -> None:
        """List the rows that the next interval touches, and pull them."""
        kernels, touched = self._device.kernels, self._lists[1]
        kernels.find_rows(self._inputs, rows, self._head, *touched)
        start = self._device.record_event()
        for params, _, mapped, base, _ in self._tables:
            kernels.rejoin_rows(*touched, mapped, params, base)
        self._pulls.append((start, self._device.record_event(), touched[1]))

    def _number(self, found: Any) -> int:
        host = np.zeros(1, np.int32)
        self._device.to_host(found, host)
        return int(host[0])

    def _bytes(self, rows: int) -> int:
        return sum(rows * table.shared[0].nbytes for table in self._tables)


ReplicaPart: TypeAlias = FlatPart | TouchedRowsPart


def count_transfer(
    device: Device, transfers: Transfers, nbytes: int, work: Callable[[], None]
) -> None:
    """Do `work`, which queues a transfer of `nbytes`; wait until it is done, and count it."""
    start = device.record_event()
    work()
    end = device.record_event()
    device.synchronize_event(end)
    transfers.add(nbytes, device.elapsed(start, end))


def fastest(device: Device, work: Callable[[], None]) -> float:
    """Seconds of the fastest of REPETITIONS calls of `work`, after one warm-up call."""
    work()
    seconds = []
    for _ in range(REPETITIONS):
        began = device.host_time()
        work()
        seconds.append(device.host_time() - began)
    return min(seconds)
