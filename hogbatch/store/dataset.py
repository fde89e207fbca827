"""Views of the training set, the test set and the epoch orders in shared memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Examples, Inputs, Labels
from hogbatch.data.sizes import SetSizes
from hogbatch.store.layout import Shape
from hogbatch.store.segment import Segment

TRAIN = "train"
TEST = "test"


def fields(train: Examples, test: Examples | None) -> Mapping[str, tuple[str, Shape]]:
    """The arrays of both sets, for :func:`hogbatch.store.layout.arrange`."""
    return fields_of(train.sizes, None if test is None else test.sizes)


def fields_of(train: SetSizes, test: SetSizes | None) -> Mapping[str, tuple[str, Shape]]:
    """The arrays of sets of these sizes, as :func:`fields` returns them."""
    sets = {TRAIN: train} if test is None else {TRAIN: train, TEST: test}
    return {
        f"{name}/{array}": field
        for name, sizes in sets.items()
        for array, field in _fields_of_set(sizes).items()
    }


def fill(segment: Segment, train: Examples, test: Examples | None) -> None:
    """Copy both sets into `segment`, which was laid out with :func:`fields`."""
    for name, array in _arrays(train, test).items():
        segment.array(name)[...] = array


def train_of(segment: Segment, features: int) -> Examples:
    """The training set, with F = `features`."""
    return _examples(segment, TRAIN, features)


def test_of(segment: Segment, features: int) -> Examples | None:
    """The test set, with F = `features`; None if there is none."""
    return _examples(segment, TEST, features) if f"{TEST}/inputs/dense" in segment else None


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
        """The orders in `segment`."""
        return cls(segment.array("order/even"), segment.array("order/odd"))

    def of(self, epoch: int) -> NDArray[np.int64]:
        """The row numbers [N] in the order of `epoch`; they are overwritten by epoch + 2."""
        return self.odd if epoch % 2 else self.even


def _fields_of_set(sizes: SetSizes) -> dict[str, tuple[str, Shape]]:
    rows = sizes.rows
    return {
        "inputs/dense": ("<f4", (0, 0) if sizes.sparse else (rows, sizes.features)),
        "inputs/indptr": ("<i8", (rows + 1 if sizes.sparse else 0,)),
        "inputs/indices": ("<i4", (sizes.stored,)),
        "inputs/values": ("<f4", (sizes.stored,)),
        "labels/values": ("<f4", (0 if sizes.lists else rows,)),
        "labels/indptr": ("<i8", (rows + 1 if sizes.lists else 0,)),
        "labels/indices": ("<i4", (sizes.listed,)),
    }


def _arrays(train: Examples, test: Examples | None) -> dict[str, NDArray[Any]]:
    sets = {TRAIN: train} if test is None else {TRAIN: train, TEST: test}
    return {
        f"{name}/{part}/{array}": value
        for name, examples in sets.items()
        for part, arrays in (("inputs", examples.inputs), ("labels", examples.labels))
        for array, value in arrays._asdict().items()
    }


def _examples(segment: Segment, name: str, features: int) -> Examples:
    inputs = Inputs(*(_read_only(segment, f"{name}/inputs/{array}") for array in Inputs._fields))
    labels = Labels(*(_read_only(segment, f"{name}/labels/{array}") for array in Labels._fields))
    return Examples(inputs, labels, features)


def _read_only(segment: Segment, name: str) -> NDArray[Any]:
    """An array of `segment` that is read-only in all processes, which then share compiled kernels.

    Numba compiles a kernel again for arrays that can be written.
    """
    array = segment.array(name).view()
    array.flags.writeable = False
    return array
