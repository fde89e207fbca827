"""Columns of a CSV file as entries of the data cache."""

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from hogbatch.data.cache import Arrays, CacheForm, as_json
from hogbatch.data.schema import Count, convert, expect, is_indptr, within
from hogbatch.data.skipped import SkippedLines
from hogbatch.data.table.columns import (
    ENCODING,
    NO_VALUE,
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    TextColumn,
)
from hogbatch.data.table.kinds import Kind

ColumnType = Literal["NumberColumn", "CategoryColumn", "DateColumn", "TextColumn"]
TYPES: Final[dict[ColumnType, type[Column]]] = {
    "NumberColumn": NumberColumn,
    "CategoryColumn": CategoryColumn,
    "DateColumn": DateColumn,
    "TextColumn": TextColumn,
}


class CsvColumns(NamedTuple):
    """Some columns of a CSV file."""

    columns: Mapping[int, Column]  # by position
    lines: int  # read; more than there are rows if some are blank or a cell has several
    skipped: SkippedLines  # with a wrong number of cells


class StoredColumn(NamedTuple):
    """The type of a column, and its fields that are not arrays."""

    type: ColumnType
    scalars: dict[str, bool | str]


class ColumnScalars(NamedTuple):
    """The scalars of columns."""

    types: dict[str, StoredColumn]  # by position
    lines: Count
    skipped: SkippedLines


def csv_columns(kinds: Mapping[int, Kind | None]) -> CacheForm[CsvColumns]:
    """The storage format of columns that are read as `kinds`."""
    return CacheForm(_pack, partial(_unpack, kinds))


def _pack(read: CsvColumns) -> tuple[ColumnScalars, Arrays]:
    arrays, types = Arrays(), dict[str, StoredColumn]()
    for position, column in read.columns.items():
        scalars = dict[str, bool | str]()
        for field in fields(column):
            value = getattr(column, field.name)
            if isinstance(value, bool | str):
                scalars[field.name] = value
            else:
                stored = value if isinstance(value, np.ndarray) else as_json(value)
                arrays[f"{position}.{field.name}"] = stored
        kind: Any = type(column).__name__
        types[str(position)] = StoredColumn(kind, scalars)
    return ColumnScalars(types, read.lines, read.skipped), arrays


def _unpack(kinds: Mapping[int, Kind | None], scalars: Any, arrays: Arrays) -> CsvColumns:
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
    for field in fields(TYPES[stored.type]):
        if field.name not in values:
            values[field.name] = arrays[f"{position}.{field.name}"]
    if stored.type == "CategoryColumn":
        values["values"] = json.loads(values["values"].tobytes())
    column: Column = convert(values, TYPES[stored.type], f"column {position}")
    expect(_is_valid(column), f"column {position}: expected other cells")
    return column


def _is_valid(column: Column) -> bool:
    """Whether a reader can return this column."""
    match column:
        case NumberColumn(numbers, boolean):
            return not boolean or bool((np.isin(numbers, (0, 1)) | np.isnan(numbers)).all())
        case CategoryColumn(codes, values):
            "".join(values).encode(ENCODING)  # UnicodeError for surrogates
            return len({*values}) == len(values) and within(codes, NO_VALUE, len(values) - 1)
        case DateColumn(seconds):
            return not bool(np.isinf(seconds).any())
        case TextColumn(characters, indptr):
            return is_indptr(indptr, len(characters))
