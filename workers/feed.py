"""How the rows of a set reach the device: all at once where they fit, else batch by batch."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Examples, Inputs, Labels
from hogbatch.kernels.gpu.device import Device

ROOM = 0.7  # share of the free memory that a set may take; scratch and graphs need the rest
BUFFERS = 2  # of a staged set: one is trained on while the next is filled


class Batch(NamedTuple):
    """Rows on the device: `rows`[B] of `inputs` and `labels`, and their `numbers`[B] in the set.
    The arrays are the same each time that `slot` is; the contents change."""

    slot: int
    inputs: Inputs
    labels: Labels
    rows: Any
    numbers: Any


class Feed(Protocol):
    """One set, for one thread. `follow` an order, then ask for batches of it; a batch is good for
    what is asked of the device before the next."""

    def reserve(self, batch: int) -> bool:
        """Make room for batches of `batch` rows; True if arrays of batches are others now."""

    def release(self) -> None:
        """Give that room back; the next batch makes it anew."""

    def follow(self, epoch: int, order: NDArray[np.int64]) -> None:
        """Batches are of `order`[N] from now on; that of one epoch never changes."""

    def batch(self, start: int, stop: int) -> Batch:
        """Rows [start, stop) of the order."""

    def rows(self, start: int, stop: int) -> Any:
        """The row numbers [start, stop) of the order, on the device; None where they are not."""


def feed_for(device: Device, examples: Examples, spoken_for: int = 0) -> "Feed":
    """The set cached on the device if there is room, else staged; `spoken_for` bytes of what is
    free now are for others."""
    arrays = (*examples.inputs, *examples.labels)
    needed = sum(array.nbytes for array in arrays) + 2 * 8 * examples.rows  # two orders
    room = ROOM * (device.free_bytes() - spoken_for)
    return (CachedSet if needed <= room else StagedSet)(device, examples)


class CachedSet:
    """A set that was copied to the device once; a batch is its row numbers."""

    def __init__(self, device: Device, examples: Examples) -> None:
        self._device = device
        self.inputs = Inputs(*[device.to_device(array) for array in examples.inputs])
        self._labels = Labels(*[device.to_device(array) for array in examples.labels])
        # Of two epochs, because at the end of one leases of both are under way.
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

    def follow(self, epoch: int, order: NDArray[np.int64]) -> None:
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


class _Buffer(NamedTuple):
    """Room for one batch: host arrays that copies leave from, and device arrays they go to."""

    host: tuple[NDArray[Any], ...]  # of Inputs, of Labels, and the rows' numbers
    device: tuple[Any, ...]


class StagedSet:
    """A set that stays on the host: each batch is gathered there and copied while the device
    trains on the one before."""

    def __init__(self, device: Device, examples: Examples) -> None:
        self._device = device
        self._arrays: tuple[NDArray[Any], ...] = (*examples.inputs, *examples.labels)
        self._longest = [
            int(np.diff(indptr).max(initial=0)) if len(indptr) else 0
            for indptr in (examples.inputs.indptr, examples.labels.indptr)
        ]
        self._order: NDArray[np.int64] = np.empty(0, np.int64)
        self._capacity = 0
        self._buffers: list[_Buffer] = []
        self._rows: Any = None
        self._copied: list[Any] = [None] * BUFFERS  # marks: the copies of a buffer are complete
        self._read: list[Any] = [None] * BUFFERS  # and what was trained on it is done
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
            self._buffers.append(_Buffer(host, tuple(device.empty(*kind) for kind in kinds)))
        self._rows = device.to_device(np.arange(batch))
        self._capacity = batch
        return True

    def release(self) -> None:
        self._device.synchronize()  # nobody reads the buffers any more
        self._buffers, self._rows, self._capacity = [], None, 0

    def _lengths(self, batch: int) -> list[int]:
        """Most cells along the first axis of each array, for `batch` rows."""
        dense, indptr, _, values, targets, label_indptr, label_indices = self._arrays
        stored = min(batch * self._longest[0], len(values))
        listed = min(batch * self._longest[1], len(label_indices))
        return [
            min(batch, len(dense)),
            batch + 1 if len(indptr) else 0,
            *(stored, stored),
            min(batch, len(targets)),
            batch + 1 if len(label_indptr) else 0,
            listed,
            batch,
        ]

    def follow(self, epoch: int, order: NDArray[np.int64]) -> None:
        self._order = order

    def batch(self, start: int, stop: int) -> Batch:
        self.reserve(stop - start)
        device, slot = self._device, self._next
        self._read[1 - slot] = device.mark()  # all asked for so far was on the other buffer
        self._next = 1 - slot
        for marks in (self._copied, self._read):
            if marks[slot] is not None:
                device.wait(marks[slot])
        buffer, mark = self._buffers[slot], None
        filled = self._gather(self._order[start:stop], buffer.host)
        for there, host, length in zip(buffer.device, buffer.host, filled, strict=True):
            mark = device.start_copy(there[:length], host[:length])
        self._copied[slot] = mark
        device.follow(mark)
        parts = Inputs(*buffer.device[:4]), Labels(*buffer.device[4:7])
        count = stop - start
        return Batch(slot, *parts, self._rows[:count], buffer.device[7][:count])

    def rows(self, start: int, stop: int) -> Any:
        return None

    def _gather(self, rows: NDArray[np.int64], out: Sequence[NDArray[Any]]) -> list[int]:
        """Copy `rows` of all arrays into `out`; cells filled along the first axis of each."""
        dense, indptr, indices, values, targets, label_indptr, label_indices = self._arrays
        filled = [_take(dense, rows, out[0])]
        filled += _take_csr(indptr, (indices, values), rows, out[1:4])
        filled += [_take(targets, rows, out[4])]
        filled += _take_csr(label_indptr, (label_indices,), rows, out[5:7])
        out[7][: len(rows)] = rows
        return [*filled, len(rows)]


def _take(array: NDArray[Any], rows: NDArray[np.int64], out: NDArray[Any]) -> int:
    """out = rows of `array`, where it has any."""
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
    """out[0] = indptr of the CSR of `rows` alone, the others their stored cells."""
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
