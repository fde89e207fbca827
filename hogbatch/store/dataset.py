"""Views of the sets of rows and of the epoch orders in shared memory."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.sets import SET_NAMES, SetName
from hogbatch.data.batch import Examples, Inputs, Labels
from hogbatch.data.sizes import SetSizes
from hogbatch.store.layout import Shape
from hogbatch.store.segment import Segment


def fields(sizes: Mapping[SetName, SetSizes]) -> Mapping[str, tuple[str, Shape]]:
    """The arrays of sets of these sizes, for :func:`hogbatch.store.layout.arrange`."""
    return {
        f"{name}/{array}": field
        for name, each in sizes.items()
        for array, field in _fields_of_set(each).items()
    }


def fill(segment: Segment, pieces: Iterable[Mapping[SetName, Examples]]) -> None:
    """Copy the rows of each of `pieces` behind those of the earlier ones, set by set.

    `segment` was laid out with :func:`fields` for the rows of all pieces together. No piece is
    in memory any more when the next one is asked for.
    """
    filled = Counter[str]()  # entries of each array
    for piece in pieces:
        for name in piece:
            _append(segment, f"{name}/inputs", piece[name].inputs, filled)
            _append(segment, f"{name}/labels", piece[name].labels, filled)
        del piece


def sets_of(segment: Segment, features: int) -> dict[SetName, Examples]:
    """The sets in `segment`, with F = `features`."""
    names = (name for name in SET_NAMES if f"{name}/inputs/dense" in segment)
    return {name: _examples(segment, name, features) for name in names}


@dataclass(frozen=True, slots=True)
class EpochOrders:
    """Two orders of the N rows: during an epoch, the order of the next one is written."""

    even: NDArray[np.int64]  # [N]
    odd: NDArray[np.int64]  # [N]

    @staticmethod
    def fields(rows: int) -> Mapping[str, tuple[str, Shape]]:
        """The arrays for N = `rows`, for :func:`hogbatch.store.layout.arrange`."""
        return {"order/even": ("<i8", (rows,)), "order/odd": ("<i8", (rows,))}

    @classmethod
    def attach(cls, segment: Segment) -> Self:
        return cls(segment.array("order/even"), segment.array("order/odd"))

    def row_order(self, epoch: int) -> NDArray[np.int64]:
        """The row numbers [N] in the order of `epoch`; they are overwritten by epoch + 2."""
        return self.odd if epoch % 2 else self.even


def _fields_of_set(sizes: SetSizes) -> dict[str, tuple[str, Shape]]:
    rows = sizes.rows
    return {
        "inputs/dense": ("<f4", (0, 0) if sizes.sparse else (rows, sizes.features)),
        "inputs/indptr": ("<i8", (rows + 1 if sizes.sparse else 0,)),
        "inputs/indices": ("<i4", (sizes.stored,)),
        "inputs/values": ("<f4", (sizes.stored,)),
        "labels/values": ("<f4", (0 if sizes.lists else rows * sizes.targets,)),
        "labels/indptr": ("<i8", (rows + 1 if sizes.lists else 0,)),
        "labels/indices": ("<i4", (sizes.listed,)),
        "labels/weights": ("<f4", (rows if sizes.weighted else 0,)),
    }


def _append(segment: Segment, name: str, arrays: Inputs | Labels, filled: Counter[str]) -> None:
    """Copy `arrays` of some rows behind what is `filled` of the arrays of a set."""
    for array, value in arrays._asdict().items():
        place = f"{name}/{array}"
        start = filled[place]
        if array == "indptr":  # its first entry is the last one of the rows before
            start, value = max(0, start - 1), value + filled[f"{name}/indices"]
        segment.write(place, start, value)
        filled[place] = start + len(value)


def _examples(segment: Segment, name: str, features: int) -> Examples:
    """A set, read-only in all processes, which then share compiled kernels."""
    inputs = Inputs(*(segment.array(f"{name}/inputs/{array}") for array in Inputs._fields))
    labels = Labels(*(segment.array(f"{name}/labels/{array}") for array in Labels._fields))
    return Examples(inputs, labels, features).read_only()
