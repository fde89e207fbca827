"""Two ways to gather the rows of a batch into arrays on the device.

Either the device reads the rows in the host's memory, or the host copies them into pinned memory,
from which they are copied to the device. The first way is several times faster, but some machines
do not allow it.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hogbatch.data.batch import Examples, Inputs, Labels
from hogbatch.kernels.gpu.device import Device, Shape
from hogbatch.kernels.gpu.reference import DeviceKernels
from hogbatch.workers.mapping import MappedSegment

CELL = 4  # bytes of a feature, of its index, and of a label
NUMBER = 8  # bytes of a row number, and of an entry of an indptr


class Arrays(NamedTuple):
    """The arrays of a set or of a batch of it."""

    inputs: Inputs
    labels: Labels

    @classmethod
    def of(cls, arrays: Sequence[Any]) -> "Arrays":
        """From the arrays of inputs and labels, in order."""
        return cls(Inputs(*arrays[:4]), Labels(*arrays[4:]))

    @property
    def by_row(self) -> tuple[Any, Any, Any]:
        """Those with one entry for each row; the set lacks those that are empty."""
        return self.inputs.dense, self.labels.values, self.labels.weights

    @property
    def lists(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Stored values, and labels in lists: the indptr of each, and its cells."""
        return self.inputs[1:], self.labels[1:3]


class RowSet:
    """The arrays of a set on the host, and the shapes of the arrays of its batches."""

    def __init__(self, examples: Examples) -> None:
        labels, self._sizes, self.targets = examples.labels, examples.sizes, examples.targets
        if self.targets > 1:  # as the rows of a matrix; kernels take either form
            labels = labels._replace(values=labels.values.reshape(-1, self.targets))
        self.arrays = Arrays(examples.inputs, labels)
        self.flat: tuple[NDArray[Any], ...] = (*examples.inputs, *labels)

    def kinds(self, batch: int) -> list[tuple[Shape, DTypeLike]]:
        """Shape and dtype of the arrays for any `batch` different rows, and of their numbers."""
        sizes = self._sizes
        *lengths, _ = self.lengths(batch, sizes.stored_in(batch), sizes.listed_in(batch))
        kinds: list[tuple[Shape, DTypeLike]] = [
            ((length, *array.shape[1:]), array.dtype)
            for length, array in zip(lengths, self.flat, strict=True)
        ]
        return [*kinds, (batch, np.int64)]

    def lengths(self, batch: int, stored: int, listed: int) -> list[int]:
        """Lengths of the arrays of `batch` rows with so many stored values and labels in lists, and
        of the row numbers.
        """
        dense, indptr, _, _, targets, label_indptr, _, weights = map(len, self.flat)
        return [
            min(batch, dense),
            batch + 1 if indptr else 0,
            stored,
            stored,
            min(batch, targets),
            batch + 1 if label_indptr else 0,
            listed,
            min(batch, weights),
            batch,
        ]


class DeviceGathering:
    """The device gathers the rows; the host only provides their numbers.

    The smallest arrays of the set are copied to the device, up to `capacity` bytes: an indptr or
    the labels are small, but reading 4 bytes over the link takes as long as reading 32. The others
    are read in the host's memory. MappingError if the device cannot do so.
    """

    def __init__(
        self, device: Device, rows: RowSet, data: MappedSegment, capacity: float = 0
    ) -> None:
        self.device = device
        self.rows = rows
        self._data = data  # pinned as long as this is referenced
        sources: list[Any] = [data.view(array) for array in rows.flat]
        over_link = [len(array) > 0 for array in rows.flat]  # else the set has no such array
        start, uploaded = device.record_event(), 0
        for index in sorted(range(len(sources)), key=lambda index: rows.flat[index].nbytes):
            size = rows.flat[index].nbytes
            if uploaded + size <= capacity:
                sources[index], over_link[index] = device.to_device(rows.flat[index]), False
                uploaded += size
        self.upload = uploaded, start, device.record_event()  # bytes, and the events of its copies
        self.sources = Arrays.of(sources)
        # Bytes that a batch moves: per row, per stored cell, and per label in a list.
        width = rows.arrays.inputs.dense.shape[1]
        self.row_bytes, self.stored_bytes, self.listed_bytes = (
            sum(itertools.compress(sizes, over_link))
            for sizes in (
                # start and end of each list
                (CELL * width, 2 * NUMBER, 0, 0, CELL * rows.targets, 2 * NUMBER, 0, CELL),
                (0, 0, CELL, CELL, 0, 0, 0, 0),
                (0, 0, 0, 0, 0, 0, CELL, 0),
            )
        )


class DeviceBuffer:
    """Arrays on the device that hold one batch at a time, which the device fills."""

    def __init__(self, gathering: DeviceGathering, batch: int) -> None:
        device = self._device = gathering.device
        self._gathering = gathering
        *arrays, self.numbers = (device.empty(*kind) for kind in gathering.rows.kinds(batch))
        self.arrays = Arrays.of(arrays)
        self._starts = device.empty(batch, np.int64)
        self._host_numbers = device.pinned(batch, np.int64)  # the row numbers on the host
        # The stored cells and the labels in lists of the batch: the device counts them.
        self._counts, self._mapped_counts = device.visible(2, np.int64)
        self._batch = 0

    def prepare(self, rows: NDArray[np.int64]) -> None:
        """Do the host's part for `rows`; all earlier copies must be done."""
        self._batch = len(rows)
        self._host_numbers[: self._batch] = rows

    def copy(self) -> None:
        """Queue the copies of the prepared rows; to be called in `Device.copy_stream`."""
        numbers = self.numbers[: self._batch]
        self._device.queue_copy(numbers, self._host_numbers[: self._batch])
        kernels, sources = self._device.kernels, self._gathering.sources
        gather(kernels, sources, numbers, self._starts, self._mapped_counts, self.arrays)

    def moved(self) -> int:
        """Bytes that the last `copy` has moved to the device; it must be done."""
        gathering, (stored, listed) = self._gathering, self._counts
        cells = stored * gathering.stored_bytes + listed * gathering.listed_bytes
        return int(self._batch * (NUMBER + gathering.row_bytes) + cells)


class HostBuffer:
    """Arrays into which the host gathers the rows, through pinned memory.

    Its methods are those of :class:`DeviceBuffer`.
    """

    def __init__(self, device: Device, rows: RowSet, batch: int) -> None:
        self._device, self._rows = device, rows
        kinds = rows.kinds(batch)
        self._host = [device.pinned(*kind) for kind in kinds]
        self._targets = [device.empty(*kind) for kind in kinds]
        *arrays, self.numbers = self._targets
        self.arrays = Arrays.of(arrays)
        self._starts = np.empty(batch, np.int64)
        self._filled: list[int] = []  # lengths of the first axes

    def prepare(self, rows: NDArray[np.int64]) -> None:
        batch, (*arrays, numbers) = len(rows), self._host
        numbers[:batch] = rows
        counts, own = np.zeros(2, np.int64), Arrays.of(arrays)
        gather(DeviceKernels(), self._rows.arrays, numbers[:batch], self._starts, counts, own)
        self._filled = self._rows.lengths(batch, *counts.tolist())

    def copy(self) -> None:
        for target, host, length in zip(self._targets, self._host, self._filled, strict=True):
            if length > 0:
                self._device.queue_copy(target[:length], host[:length])

    def moved(self) -> int:
        filled = zip(self._host, self._filled, strict=True)
        return sum(host[:length].nbytes for host, length in filled)


Buffer: TypeAlias = DeviceBuffer | HostBuffer


def gather(
    kernels: DeviceKernels, sources: Arrays, rows: Any, starts: Any, counts: Any, out: Arrays
) -> None:
    """Gather `rows`[B] of a set into `out`, which has room for them, with the kernels of a backend.

    counts[2] become the numbers of stored values and of labels in lists; starts[B...] is scratch.
    """
    batch = len(rows)
    for source, target in zip(sources.by_row, out.by_row, strict=True):
        if len(source):
            kernels.copy_rows(source, rows, target[:batch])
    pairs = zip(sources.lists, out.lists, strict=True)
    for index, ((indptr, *cells), (out_indptr, *targets)) in enumerate(pairs):
        if len(indptr):
            begins, selected = starts[:batch], out_indptr[: batch + 1]
            kernels.select_rows(indptr, rows, begins, selected, counts[index : index + 1])
            for source, target in zip(cells, targets, strict=True):
                kernels.copy_cells(source, begins, selected, target)
