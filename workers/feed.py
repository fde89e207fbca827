"""Transfer of rows to the device: the whole set in advance if it fits, else batch by batch."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Examples, Inputs, Labels
from hogbatch.kernels.gpu.device import Device

MAX_MEMORY_FRACTION = 0.7  # of the free memory for a cached set; scratch and graphs need the rest
BUFFERS = 2  # of a staged set: one is filled while the device trains on the other


class Batch(NamedTuple):
    """A batch on the device: `rows`[B] of `inputs` and `labels`, and their `numbers`[B] in the set.

    Batches with the same `slot` use the same arrays with different contents.
    """

    slot: int
    inputs: Inputs
    labels: Labels
    rows: Any
    numbers: Any


class Feed(Protocol):
    """Batches of one set, for one thread.

    Call `set_order`, then `batch`. A batch is valid for the work queued on the device before the
    next batch is requested.
    """

    def reserve(self, batch: int) -> bool:
        """Allocate buffers for batches of `batch` rows; return True if the arrays have changed."""

    def release(self) -> None:
        """Free these buffers; the next batch allocates them again."""

    def set_order(self, epoch: int, order: NDArray[np.int64]) -> None:
        """Set the order of the next batches to `order`[N], which is fixed for each epoch."""

    def batch(self, start: int, stop: int) -> Batch:
        """The batch of rows [start, stop) of the order."""

    def rows(self, start: int, stop: int) -> Any:
        """The row numbers [start, stop) of the order on the device; None if the set is staged."""


def feed_for(device: Device, examples: Examples, reserved_bytes: int = 0) -> "Feed":
    """Cache the set on the device if it fits, else stage its batches.

    `reserved_bytes` of the memory that is free now are needed for other purposes.
    """
    arrays = (*examples.inputs, *examples.labels)
    needed = sum(array.nbytes for array in arrays) + 2 * 8 * examples.rows  # two orders
    capacity = MAX_MEMORY_FRACTION * (device.free_bytes() - reserved_bytes)
    return (CachedSet if needed <= capacity else StagedSet)(device, examples)


class CachedSet:
    """A set that is copied to the device once; a batch is a list of row numbers."""

    def __init__(self, device: Device, examples: Examples) -> None:
        self._device = device
        self.inputs = Inputs(*[device.to_device(array) for array in examples.inputs])
        self._labels = Labels(*[device.to_device(array) for array in examples.labels])
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
        place = epoch % 2
        self._order = self._orders[place]
        if self._epochs[place] != epoch:
            self._device.copy_into(self._order, np.ascontiguousarray(order))
            self._epochs[place] = epoch

    def batch(self, start: int, stop: int) -> Batch:
        self.reserve(stop - start)
        rows = self._rows[: stop - start]
        self._device.xp.copyto(rows, self._order[start:stop])
        return Batch(0, self.inputs, self._labels, rows, rows)

    def rows(self, start: int, stop: int) -> Any:
        return self._order[start:stop]


class _StagingBuffer(NamedTuple):
    """Buffers for one batch: the host arrays and the device arrays that they are copied to."""

    host: tuple[NDArray[Any], ...]  # the arrays of Inputs and Labels, and the row numbers
    device: tuple[Any, ...]


class StagedSet:
    """A set that stays on the host.

    Each batch is gathered there, and copied while the device trains on the previous one.
    """

    def __init__(self, device: Device, examples: Examples) -> None:
        self._device = device
        self._arrays: tuple[NDArray[Any], ...] = (*examples.inputs, *examples.labels)
        self._max_lengths = [
            int(np.diff(indptr).max(initial=0)) if len(indptr) else 0
            for indptr in (examples.inputs.indptr, examples.labels.indptr)
        ]
        self._order: NDArray[np.int64] = np.empty(0, np.int64)
        self._capacity = 0
        self._buffers: list[_StagingBuffer] = []
        self._rows: Any = None
        self._copy_done: list[Any] = [None] * BUFFERS  # events: a buffer's copies are complete
        self._read_done: list[Any] = [None] * BUFFERS  # events: training on a buffer is done
        self._next = 0

    def reserve(self, batch: int) -> bool:
        if batch <= self._capacity:
            return False
        self.release()
        device = self._device
        lengths = self._lengths(batch)
        for _ in range(BUFFERS):
            arrays = *self._arrays, self._order
            shapes = [(n, *a.shape[1:]) for n, a in zip(lengths, arrays, strict=True)]
            kinds = list(zip(shapes, (array.dtype for array in arrays), strict=True))
            host = tuple(device.pinned(*kind) for kind in kinds)
            self._buffers.append(_StagingBuffer(host, tuple(device.empty(*kind) for kind in kinds)))
        self._rows = device.to_device(np.arange(batch))
        self._capacity = batch
        return True

    def release(self) -> None:
        self._device.synchronize()  # the device may still read the buffers
        self._buffers, self._rows, self._capacity = [], None, 0

    def _lengths(self, batch: int) -> list[int]:
        """Maximum length of each array's first axis for `batch` rows."""
        dense, indptr, _, values, targets, label_indptr, label_indices = self._arrays
        stored = min(batch * self._max_lengths[0], len(values))
        listed = min(batch * self._max_lengths[1], len(label_indices))
        return [
            min(batch, len(dense)),
            batch + 1 if len(indptr) else 0,
            *(stored, stored),
            min(batch, len(targets)),
            batch + 1 if len(label_indptr) else 0,
            listed,
            batch,
        ]

    def set_order(self, epoch: int, order: NDArray[np.int64]) -> None:
        self._order = order

    def batch(self, start: int, stop: int) -> Batch:
        self.reserve(stop - start)
        device, slot = self._device, self._next
        # All work queued so far reads the other buffer.
        self._read_done[1 - slot] = device.record_event()
        self._next = 1 - slot
        for events in (self._copy_done, self._read_done):
            if events[slot] is not None:
                device.synchronize_event(events[slot])
        buffer, event = self._buffers[slot], None
        filled = self._gather(self._order[start:stop], buffer.host)
        for target, host, length in zip(buffer.device, buffer.host, filled, strict=True):
            event = device.start_copy(target[:length], host[:length])
        self._copy_done[slot] = event
        device.wait_event(event)
        parts = Inputs(*buffer.device[:4]), Labels(*buffer.device[4:7])
        count = stop - start
        return Batch(slot, *parts, self._rows[:count], buffer.device[7][:count])

    def rows(self, start: int, stop: int) -> Any:
        return None

    def _gather(self, rows: NDArray[np.int64], out: Sequence[NDArray[Any]]) -> list[int]:
        """Copy `rows` of all arrays into `out`; return the filled length of each first axis."""
        dense, indptr, indices, values, targets, label_indptr, label_indices = self._arrays
        filled = [_take_rows(dense, rows, out[0])]
        filled += _take_csr(indptr, (indices, values), rows, out[1:4])
        filled += [_take_rows(targets, rows, out[4])]
        filled += _take_csr(label_indptr, (label_indices,), rows, out[5:7])
        out[7][: len(rows)] = rows
        return [*filled, len(rows)]


def _take_rows(array: NDArray[Any], rows: NDArray[np.int64], out: NDArray[Any]) -> int:
    """out = `array`[rows]; return the number of rows, 0 if `array` is empty."""
    if len(array) == 0:
        return 0
    np.take(array, rows, axis=0, out=out[: len(rows)], mode="clip")  # "raise" copies twice
    return len(rows)


def _take_csr(
    indptr: NDArray[np.int64],
    arrays: tuple[NDArray[Any], ...],
    rows: NDArray[np.int64],
    out: Sequence[NDArray[Any]],
) -> list[int]:
    """out[0] = the indptr of a CSR of `rows` only, out[1:] = their stored cells of `arrays`."""
    if len(indptr) == 0:
        return [0] * len(out)
    starts = indptr[rows]
    counts = indptr[rows + 1] - starts
    out[0][0] = 0
    np.cumsum(counts, out=out[0][1 : len(rows) + 1])
    stored = int(out[0][len(rows)])
    positions = np.arange(stored) + np.repeat(starts - out[0][: len(rows)], counts)
    for array, target in zip(arrays, out[1:], strict=True):
        np.take(array, positions, out=target[:stored], mode="clip")
    return [len(rows) + 1, *[stored] * len(arrays)]
