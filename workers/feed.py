"""Transfer of rows to the device: the whole set in advance if it fits, else batch by batch."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Examples, Inputs, Labels
from hogbatch.kernels.gpu.device import Device
from hogbatch.workers.gathering import Buffer, DeviceBuffer, DeviceGathering, HostBuffer, RowSet
from hogbatch.workers.mapping import MappedSegment, MappingError
from hogbatch.workers.transfers import Transfers

BUFFERS = 2  # one is filled while the device trains on the other
MAX_MEMORY_FRACTION = 0.7  # of the free memory for the set; scratch and graphs need the rest


class Batch(NamedTuple):
    """A batch on the device: `rows`[B] of `inputs` and `labels`, and their `numbers`[B] in the set.

    Batches with the same `slot` use the same arrays with different contents.
    """

    slot: int
    inputs: Inputs
    labels: Labels
    rows: Any
    numbers: Any


class _Slot:
    """A buffer with the events of its last use."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.copied: tuple[Any, Any] | None = None  # start and end of copies not counted yet
        self.read_done: Any = None  # event: the device has trained on it


class StagedSet:
    """Batches of a set on the host, in two buffers on the device.

    The copies of a batch run concurrently with the training on the batch before it. They begin when
    the device has trained on the batch before that, which used the same buffer; the host does not
    wait for this.

    Call `set_order`, then `batch`. A batch is valid for the work queued on the device before the
    next batch is requested.
    """

    def __init__(self, device: Device, buffer: Callable[[int], Buffer]) -> None:
        """`buffer` returns a new buffer for batches of a number of rows."""
        self.transfers = Transfers()
        self._device, self._new_buffer = device, buffer
        self._order: NDArray[np.int64] = np.empty(0, np.int64)
        self._capacity = 0
        self._slots: list[_Slot] = []
        self._rows: Any = None
        self._next = 0

    def reserve(self, batch: int) -> bool:
        """Allocate buffers for batches of `batch` rows; return True if the arrays have changed."""
        if batch <= self._capacity:
            return False
        self.release()
        self._slots = [_Slot(self._new_buffer(batch)) for _ in range(BUFFERS)]
        self._rows = self._device.to_device(np.arange(batch))
        self._capacity = batch
        return True

    def release(self) -> None:
        """Free these buffers; the next batch allocates them again."""
        with self._device.copy_stream():
            self._device.synchronize()  # copies of a batch that failed may not be complete
        self._device.synchronize()  # the device may still read the buffers
        self.finish()
        self._slots, self._rows, self._capacity = [], None, 0

    def set_order(self, epoch: int, order: NDArray[np.int64]) -> None:
        """Set the order of the next batches to `order`[N], which is fixed for each epoch."""
        self._order = order

    def batch(self, start: int, stop: int) -> Batch:
        """The batch of rows [start, stop) of the order."""
        self.reserve(stop - start)
        device, number = self._device, self._next
        slot = self._slots[number]
        # All work queued so far reads the other buffer.
        self._slots[1 - number].read_done = device.record_event()
        self._next = 1 - number
        self._count(slot)  # also waits, because the host prepares the same memory again
        slot.buffer.prepare(self._order[start:stop])
        with device.copy_stream():
            if slot.read_done is not None:
                device.wait_event(slot.read_done)
            began = device.record_event()
            slot.buffer.copy()
            slot.copied = began, device.record_event()
        device.wait_event(slot.copied[1])
        count = stop - start
        (inputs, labels), numbers = slot.buffer.arrays, slot.buffer.numbers
        return Batch(number, inputs, labels, self._rows[:count], numbers[:count])

    def rows(self, start: int, stop: int) -> Any:
        """None: only a cached set has the row numbers [start, stop) on the device."""
        return None

    def finish(self) -> None:
        """Wait for all copies, so that `transfers` counts them."""
        for slot in self._slots:
            self._count(slot)

    def _count(self, slot: _Slot) -> None:
        """Wait for the last copies into a buffer, and count them."""
        if slot.copied is not None:
            began, ended = slot.copied
            self._device.synchronize_event(ended)
            self.transfers.add(slot.buffer.moved(), self._device.elapsed(began, ended))
            slot.copied = None


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


def staged_set(
    device: Device, examples: Examples, data: MappedSegment | None, capacity: float
) -> StagedSet:
    """Stage a set; the device gathers its rows if it can read `data`, else the host.

    In the first case, small arrays of the set are copied to the device, up to `capacity` bytes.
    """
    rows = RowSet(examples)
    try:
        if data is None:
            raise MappingError("the data are not shared")
        gathering = DeviceGathering(device, rows, data, capacity)
    except MappingError as error:
        logging.info("the host gathers the rows of batches: %s", error)
        return StagedSet(device, partial(HostBuffer, device, rows))
    feed = StagedSet(device, partial(DeviceBuffer, gathering))
    uploaded, start, end = gathering.upload
    device.synchronize_event(end)
    feed.transfers.add(uploaded, device.elapsed(start, end))
    return feed
