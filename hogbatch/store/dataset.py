"""The train and test set in shared memory, and the order of an epoch's rows. Views throughout."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Examples, Inputs, Labels
from hogbatch.store.layout import Shape
from hogbatch.store.segment import Segment

TRAIN = "train"
TEST = "test"


def fields(train: Examples, test: Examples | None) -> Mapping[str, tuple[str, Shape]]:
    """The arrays to arrange for both sets."""
    return {name: (array.dtype.str, array.shape) for name, array in _arrays(train, test).items()}


def fill(segment: Segment, train: Examples, test: Examples | None) -> None:
    """Copy both sets into `segment`, laid out by :func:`fields`: the only copy of a run."""
    for name, array in _arrays(train, test).items():
        segment.array(name)[...] = array


def train_of(segment: Segment, features: int) -> Examples:
    """The train set, with F = `features`."""
    return _examples(segment, TRAIN, features)


def test_of(segment: Segment, features: int) -> Examples | None:
    """The test set, with F = `features`, if there is one."""
    return _examples(segment, TEST, features) if f"{TEST}/inputs/dense" in segment else None


@dataclass(frozen=True, slots=True)
class EpochOrders:
    """Two orders of the N rows: while one epoch runs, the next one's order is being written."""

    even: NDArray[np.int64]  # [N]
    odd: NDArray[np.int64]  # [N]

    @staticmethod
    def fields(rows: int) -> Mapping[str, tuple[str, Shape]]:
        """The arrays to arrange for N = `rows`."""
        return {"order/even": ("<i8", (rows,)), "order/odd": ("<i8", (rows,))}

    @classmethod
    def attach(cls, segment: Segment) -> Self:
        """The orders in `segment`."""
        return cls(segment.array("order/even"), segment.array("order/odd"))

    def of(self, epoch: int) -> NDArray[np.int64]:
        """The row numbers [N] in the order of `epoch`; epoch + 2 overwrites them."""
        return self.odd if epoch % 2 else self.even


def _arrays(train: Examples, test: Examples | None) -> dict[str, NDArray[Any]]:
    sets = {TRAIN: train} if test is None else {TRAIN: train, TEST: test}
    return {
        f"{name}/{part}/{array}": value
        for name, examples in sets.items()
        for part, arrays in (("inputs", examples.inputs), ("labels", examples.labels))
        for array, value in arrays._asdict().items()
    }


def _examples(segment: Segment, name: str, features: int) -> Examples:
    inputs = Inputs(*(segment.array(f"{name}/inputs/{array}") for array in Inputs._fields))
    labels = Labels(*(segment.array(f"{name}/labels/{array}") for array in Labels._fields))
    return Examples(inputs, labels, features)
