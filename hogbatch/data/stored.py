"""Sparse rows, and columns of a CSV file, as entries of the data cache."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import csr_inputs
from hogbatch.data.cache import Arrays, CacheForm, as_json
from hogbatch.data.raw import MAX_INDEX, LabelLists, RawSet
from hogbatch.data.schema import (
    FLOAT32_MAX,
    FLOAT64_MAX,
    MAX_INT,
    Count,
    Range,
    by_field,
    convert,
    expect,
    is_indptr,
    within,
)
from hogbatch.data.skipped import SkippedLines
from hogbatch.data.table.columns import (
    ENCODING,
    NO_VALUE,
    CategoryColumn,
    Column,
    DateColumn,
    Kind,
    NumberColumn,
    TextColumn,
)

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


def _pack_rows(raw: RawSet) -> tuple[RowScalars, Arrays]:
    _, indptr, indices, values = raw.inputs
    assert raw.lines is not None, "text has lines"
    rows = RowArrays(indptr, indices, values, raw.lines, raw.labels, *(raw.label_lists or ()))
    return RowScalars(*(getattr(raw, name) for name in RowScalars._fields)), by_field(rows)[1]


def _unpack_rows(scalars: Any, arrays: Arrays) -> RawSet:
    known: RowScalars = convert(scalars, RowScalars, "scalars")
    rows: RowArrays = convert(arrays, RowArrays, "arrays")
    known.skipped.validate()
    rows.validate(known.features, known.classes_hint, len(known.label_names))
    return RawSet(
        csr_inputs(rows.indptr, rows.indices, rows.values),
        labels=rows.labels,
        label_lists=rows.label_lists(),
        lines=rows.lines,
        **known._asdict(),
    )


RAW_SETS: Final = CacheForm(_pack_rows, _unpack_rows)


TYPES: Final[dict[Kind, type[Column]]] = {
    each.kind: each for each in (NumberColumn, CategoryColumn, DateColumn, TextColumn)
}


class CsvColumns(NamedTuple):
    """Some columns of a CSV file."""

    columns: Mapping[int, Column]  # by position
    lines: int  # read; more than there are rows if some are blank or a cell has several
    skipped: SkippedLines  # with a wrong number of cells


class StoredColumn(NamedTuple):
    """The kind of a column, and its fields that are not arrays."""

    kind: Kind
    scalars: dict[str, bool | str]


class ColumnScalars(NamedTuple):
    """The scalars of columns."""

    types: dict[str, StoredColumn]  # by position
    lines: Count
    skipped: SkippedLines


def csv_columns(kinds: Mapping[int, Kind | None]) -> CacheForm[CsvColumns]:
    """The storage format of columns that are read as `kinds`."""
    return CacheForm(_pack_columns, partial(_unpack_columns, kinds))


def _pack_columns(read: CsvColumns) -> tuple[ColumnScalars, Arrays]:
    arrays, types = Arrays(), dict[str, StoredColumn]()
    for position, column in read.columns.items():
        scalars, own = by_field(column)
        if isinstance(column, CategoryColumn):
            own["values"] = as_json(scalars.pop("values"))
        types[str(position)] = StoredColumn(column.kind, scalars)
        arrays |= {f"{position}.{name}": array for name, array in own.items()}
    return ColumnScalars(types, read.lines, read.skipped), arrays


def _unpack_columns(kinds: Mapping[int, Kind | None], scalars: Any, arrays: Arrays) -> CsvColumns:
    read: ColumnScalars = convert(scalars, ColumnScalars, "scalars")
    read.skipped.validate()
    expect(list(read.types) == list(map(str, kinds)), "expected the columns that are read")
    columns = {n: _column(n, read.types[str(n)], arrays) for n in kinds}
    for n, column in columns.items():
        text = isinstance(column, TextColumn)
        expect(text == (kinds[n] == "text"), f"column {n}: expected text if it is requested")
    rows = {len(column) for column in columns.values()}
    expect(len(rows) == 1 and 0 < max(rows) <= read.lines, "expected a cell of each row")
    return CsvColumns(columns, read.lines, read.skipped)


def _column(position: int, stored: StoredColumn, arrays: Arrays) -> Column:
    """A column; ValueError for cells that no reader returns."""
    values: dict[str, Any] = {**stored.scalars}
    for field in fields(TYPES[stored.kind]):
        if field.name not in values:
            values[field.name] = arrays[f"{position}.{field.name}"]
    if stored.kind == "category":
        values["values"] = json.loads(values["values"].tobytes())
    column: Column = convert(values, TYPES[stored.kind], f"column {position}")
    expect(_is_valid(column), f"column {position}: expected other cells")
    return column


def _is_valid(column: Column) -> bool:
    """Whether a reader can return this column."""
    match column:
        case NumberColumn(numbers, _, boolean):
            return not boolean or bool((np.isin(numbers, (0, 1)) | np.isnan(numbers)).all())
        case CategoryColumn(codes, values):
            "".join(values).encode(ENCODING)  # UnicodeError for surrogates
            return len({*values}) == len(values) and within(codes, NO_VALUE, len(values) - 1)
        case DateColumn(seconds):
            return not bool(np.isinf(seconds).any())
        case TextColumn(characters, indptr):
            return is_indptr(indptr, len(characters))
