"""Views of the sets of rows and of the epoch orders in shared memory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

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
    ends = dict.fromkeys(SET_NAMES, _Ends())
    for piece in pieces:
        ends |= {name: _append(segment, name, ends[name], rows) for name, rows in piece.items()}
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


class _Ends(NamedTuple):
    """The filled part of a set."""

    rows: int = 0
    stored: int = 0
    listed: int = 0


def _append(segment: Segment, name: str, ends: _Ends, examples: Examples) -> _Ends:
    """Copy `examples` behind the filled rows of a set; return the new ends."""
    inputs, labels = examples.inputs, examples.labels
    rows, stored, listed = ends
    for array, start, value in (
        ("inputs/dense", rows, inputs.dense),
        ("inputs/indptr", rows, inputs.indptr + stored),
        ("inputs/indices", stored, inputs.indices),
        ("inputs/values", stored, inputs.values),
        ("labels/values", rows * examples.targets, labels.values),
        ("labels/indptr", rows, labels.indptr + listed),
        ("labels/indices", listed, labels.indices),
        ("labels/weights", rows, labels.weights),
    ):
        segment.write(f"{name}/{array}", start, value)
    return _Ends(rows + examples.rows, stored + len(inputs.indices), listed + len(labels.indices))


def _examples(segment: Segment, name: str, features: int) -> Examples:
    """A set, read-only in all processes, which then share compiled kernels."""
    inputs = Inputs(*(segment.array(f"{name}/inputs/{array}") for array in Inputs._fields))
    labels = Labels(*(segment.array(f"{name}/labels/{array}") for array in Labels._fields))
    return Examples(inputs, labels, features).read_only()
