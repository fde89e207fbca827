"""The labels of a table."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.raw import LabelNames
from hogbatch.data.table.columns import CategoryColumn, Column, NumberColumn, Table
from hogbatch.data.table.kinds import Kind, UnexpectedCells, typed
from hogbatch.errors import DataError
from hogbatch.machine.printable import quoted


class TableLabels(NamedTuple):
    """The labels of all rows of a table."""

    values: NDArray[np.float64]  # [M], NaN where missing
    names: LabelNames  # if the values are places in it
    unexpected: UnexpectedCells | None
    column: str  # its name


def table_labels(table: Table, position: int, kind: Kind | None) -> TableLabels:
    """The labels of a table: numbers, or places among the sorted texts, or among false and true."""
    column, unexpected = typed(table, position, kind)
    name = table.names[position]
    if isinstance(column, NumberColumn):
        names = (False, True) if column.boolean else ()
        return TableLabels(column.values.astype(np.float64, copy=False), names, unexpected, name)
    if not isinstance(column, CategoryColumn):
        raise DataError(
            f"{table.source}: the label column {quoted(name)} contains dates; "
            "expected numbers, text, or the values true and false"
        )
    codes = column.codes[~column.missing]
    used = np.unique(codes)
    texts = sorted(column.values[code] for code in used)
    places = {text: n for n, text in enumerate(texts)}
    lookup = np.array([places.get(v, np.nan) for v in column.values] + [np.nan], np.float64)
    return TableLabels(lookup[column.codes], tuple(texts), unexpected, name)


def label_column(labels: TableLabels, column: Column) -> Column:
    """The label column as it is read: text, or numbers."""
    if isinstance(column, CategoryColumn) and labels.names:
        return column
    return NumberColumn(labels.values, boolean=labels.names == (False, True))
