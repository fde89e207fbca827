"""Columns of a CSV file as entries of the data cache."""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple

import numpy as np

from hogbatch.data.cache import Arrays, CacheForm, as_json, skipped_lines
from hogbatch.data.skipped import SkippedLines
from hogbatch.data.table.columns import (
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    TextColumn,
)


class CsvColumns(NamedTuple):
    """Some columns of a CSV file."""

    columns: Mapping[int, Column]  # by position
    lines: int  # read; more than there are rows if some are blank or a cell has several
    skipped: SkippedLines  # with a wrong number of cells


def _pack(read: CsvColumns) -> tuple[dict[str, Any], Arrays]:
    arrays, types = Arrays(), dict[int, str]()
    for position, column in read.columns.items():
        boolean = isinstance(column, NumberColumn) and column.boolean
        types[position] = "boolean" if boolean else type(column).__name__
        for field in fields(column):
            value = getattr(column, field.name)
            if field.name != "boolean":
                stored = value if isinstance(value, np.ndarray) else as_json(value)
                arrays[f"{position}.{field.name}"] = stored
    return {"types": types, "lines": read.lines, "skipped": read.skipped}, arrays


def _unpack(header: Mapping[str, Any], arrays: Arrays) -> CsvColumns:
    columns = {int(n): _column(kind, f"{n}.", arrays) for n, kind in header["types"].items()}
    return CsvColumns(columns, header["lines"], skipped_lines(header["skipped"]))


def _column(kind: str, prefix: str, arrays: Arrays) -> Column:
    if kind == "CategoryColumn":
        values = json.loads(arrays[f"{prefix}values"].tobytes())
        return CategoryColumn(arrays[f"{prefix}codes"], values)
    if kind in ("NumberColumn", "boolean"):
        return NumberColumn(arrays[f"{prefix}values"], boolean=kind == "boolean")
    if kind == "DateColumn":
        return DateColumn(arrays[f"{prefix}seconds"])
    return TextColumn(arrays[f"{prefix}characters"], arrays[f"{prefix}indptr"])


CSV_COLUMNS: Final = CacheForm(_pack, _unpack)
