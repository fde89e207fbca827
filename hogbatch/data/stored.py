"""Sparse rows as entries of the data cache."""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import csr_inputs
from hogbatch.data.cache import Arrays, CacheForm
from hogbatch.data.raw import MAX_INDEX, LabelLists, RawSet
from hogbatch.data.schema import (
    FLOAT32_MAX,
    FLOAT64_MAX,
    MAX_INT,
    Range,
    convert,
    expect,
    is_indptr,
    within,
)
from hogbatch.data.skipped import SkippedLines

Size = Annotated[int, Range(0, MAX_INDEX + 1)]


class RowScalars(NamedTuple):
    """The scalars of sparse rows, as in `RawSet`."""

    features: Size
    source: str
    classes_hint: Size
    index_base: Literal[0, 1] | None
    skipped: SkippedLines
    label_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RowArrays:
    """The arrays of sparse rows: those of `Inputs`, `LabelLists` and `RawSet`."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]
    lines: NDArray[np.int64]
    labels: NDArray[np.float64] | NDArray[np.int64] | None = None
    label_indptr: NDArray[np.int64] | None = None
    label_indices: NDArray[np.int32] | None = None

    def label_lists(self) -> LabelLists | None:
        """The lists of labels, if there are any."""
        if self.label_indptr is None or self.label_indices is None:
            return None
        return LabelLists(self.label_indptr, self.label_indices)

    def validate(self, features: int, labels: int, names: int) -> None:
        """ValueError unless the rows could have been read, with indices below these numbers.

        With `names`, the number of names of labels, labels are places among them.
        """
        rows, lists = len(self.lines), self.label_lists()
        expect(rows > 0 and within(self.lines, 1, MAX_INT), "lines: expected numbers from 1")
        expect(bool((self.lines[1:] > self.lines[:-1]).all()), "lines: expected ascending numbers")
        _expect_csr("indices", rows, self.indptr, self.indices, features)
        expect(len(self.values) == len(self.indices), "values: expected one for each index")
        expect(_finite(self.values), "values: expected finite ones")
        whole = (self.label_indptr is None) == (self.label_indices is None)
        expect(whole, "label_indptr and label_indices: expected both or neither")
        if lists is not None:
            _expect_csr("label_indices", rows, *lists, labels or MAX_INDEX + 1)
            expect(self.labels is None, "labels: expected none besides lists")
        if self.labels is not None:
            expect(len(self.labels) == rows, "labels: expected one for each row")
            low, high = (0, names - 1) if names else (-FLOAT64_MAX, FLOAT64_MAX)
            expect(within(self.labels, low, high), "labels: expected finite ones")


def _finite(values: NDArray[np.float32]) -> bool:
    """Whether all values are finite; a product that does not overflow takes half the time."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.dot(values, values)
    return bool(np.isfinite(squares)) or within(values, -FLOAT32_MAX, FLOAT32_MAX)


def _expect_csr(
    name: str, rows: int, indptr: NDArray[np.int64], indices: NDArray[np.int32], bound: int
) -> None:
    """ValueError unless these are lists of ascending indices below `bound`, one for each row."""
    whole = len(indptr) == rows + 1 and indptr[0] == 0 and indptr[-1] == len(indices)
    expect(whole and is_indptr(indptr, len(indices)), f"{name}: expected a list for each row")
    expect(csr.ascends(indptr, indices), f"{name}: expected ascending indices in each row")
    highest = indices.view(np.uint32).max(initial=0)  # a negative one becomes large
    expect(highest < max(bound, 1), f"{name}: expected indices below {bound}")


def _pack(raw: RawSet) -> tuple[RowScalars, Arrays]:
    _, indptr, indices, values = raw.inputs
    lists = raw.label_lists
    arrays: dict[str, NDArray[Any] | None] = {
        "indptr": indptr,
        "indices": indices,
        "values": values,
        "lines": raw.lines,
        "labels": raw.labels,
        "label_indptr": lists and lists.indptr,
        "label_indices": lists and lists.indices,
    }
    scalars = RowScalars(*(getattr(raw, name) for name in RowScalars._fields))
    return scalars, {name: array for name, array in arrays.items() if array is not None}


def _unpack(scalars: Any, arrays: Arrays) -> RawSet:
    known: RowScalars = convert(scalars, RowScalars, "scalars")
    rows: RowArrays = convert(arrays, RowArrays, "arrays")
    known.skipped.validate()
    rows.validate(known.features, known.classes_hint, len(known.label_names))
    return RawSet(
        csr_inputs(rows.indptr, rows.indices, rows.values),
        known.features,
        rows.labels,
        rows.label_lists(),
        known.source,
        known.classes_hint,
        known.index_base,
        rows.lines,
        known.skipped,
        label_names=known.label_names,
    )


RAW_SETS: Final = CacheForm(_pack, _unpack)
