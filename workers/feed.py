"""Transfer of rows to the device: the whole set in advance if it fits, else batch by batch."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Examples, Inputs, Labels
from hogbatch.kernels.gpu.device import Device
from hogbatch.workers.mapping import MappedSegment
from hogbatch.workers.staged import Batch, StagedSet, staged_set
from hogbatch.workers.transfers import Transfers

MAX_MEMORY_FRACTION = 0.7  # of the free memory for the set; scratch and graphs need the rest


class CachedSet:
    """A set that is copied to the device once; a batch is a list of row numbers.

    For one thread, like :class:`StagedSet`, whose methods have the same meaning. `transfers` are
    those to the device; a copy is counted when the one after next begins.
    """

    def __init__(self, device: Device, examples: Examples) -> None:
        self.transfers = Transfers()
        self._device = device
        start = device.record_event()
        self.inputs = Inputs(*[device.to_device(array) for array in examples.inputs])
        self._labels = Labels(*[device.to_device(array) for array in examples.labels])
        # The copy that is not counted yet: its bytes, and the events of its start and end.
        self._copied: tuple[int, Any, Any] | None = examples.nbytes, start, device.record_event()
        # For two epochs, because leases of both are in progress at the end of an epoch.
        self._orders = [device.empty(examples.rows, np.int64) for _ in range(2)]
        self._epochs: list[int | None] = [None, None]
        self._order = self._orders[0]
        self._rows = device.empty(0, np.int64)

    def reserve(self, batch: int) -> bool:
        if batch <= len(self._rows):
            return False
        self._rows = self._device.empty(batch, np.int64)
        return True

    def release(self) -> None:
        self._rows = self._device.empty(0, np.int64)

    def set_order(self, epoch: int, order: NDArray[np.int64]) -> None:
        self._count()
        index = epoch % 2
        self._order = self._orders[index]
        if self._epochs[index] != epoch:
            start = self._device.record_event()
            self._device.copy_into(self._order, np.ascontiguousarray(order))
            self._copied = order.nbytes, start, self._device.record_event()
            self._epochs[index] = epoch

    def batch(self, start: int, stop: int) -> Batch:
        self.reserve(stop - start)
        rows = self._rows[: stop - start]
        self._device.xp.copyto(rows, self._order[start:stop])
        return Batch(0, self.inputs, self._labels, rows, rows)

    def rows(self, start: int, stop: int) -> Any:
        return self._order[start:stop]

    def _count(self) -> None:
        """Count the last copy, which is complete: copies into pageable memory wait."""
        if self._copied is not None:
            count, start, end = self._copied
            self._device.synchronize_event(end)
            self.transfers.add(count, self._device.elapsed(start, end))
            self._copied = None


Feed: TypeAlias = CachedSet | StagedSet


def feed_for(
    device: Device,
    examples: Examples,
    reserved_bytes: int = 0,
    data: MappedSegment | None = None,
    *,
    cached: bool = True,
) -> Feed:
    """Cache the set on the device if it fits and may be `cached`, else stage its batches.

    `reserved_bytes` of the memory that is free now are needed for other purposes. `data` contains
    the set, if the device may read it there.
    """
    arrays = (*examples.inputs, *examples.labels)
    needed = sum(array.nbytes for array in arrays) + 2 * 8 * examples.rows  # two orders
    capacity = MAX_MEMORY_FRACTION * (device.free_bytes() - reserved_bytes)
    if cached and needed <= capacity:
        return CachedSet(device, examples)
    return staged_set(device, examples, data, capacity)
