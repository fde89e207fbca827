"""The labels of a table."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.encode import look_like_classes
from hogbatch.data.raw import LabelNames
from hogbatch.data.row_labels import RowLabels, labels_of
from hogbatch.data.table.columns import (
    MISSING,
    NO_CELL,
    NO_VALUE,
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    Table,
    to_categories,
)
from hogbatch.data.table.encoding import LabelColumn, TableEncoding
from hogbatch.data.table.kinds import example
from hogbatch.data.table.typed import UnexpectedCells, typed
from hogbatch.data.table.written import number_of
from hogbatch.errors import DataError
from hogbatch.machine.printable import plural, quoted


class TableLabels(NamedTuple):
    """The labels of all rows of a table."""

    values: NDArray[np.float64]  # [M], NaN where missing
    names: LabelNames  # if the values are places in it
    unexpected: UnexpectedCells | None
    name: str  # of the column
    column: Column  # the labels as a column
    notes: tuple[str, ...] = ()  # for the user

    def of(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """The labels of some rows, all of which have one."""
        whole = isinstance(self.column, NumberColumn) and self.column.whole
        return self.values[rows].astype(np.int64 if whole else np.float64)


def table_labels(
    table: Table, positions: Sequence[int], encoding: TableEncoding | None = None
) -> tuple[TableLabels, ...]:
    """The labels of a table in each of the columns at `positions`.

    The labels of one column are numbers, or places among the sorted texts, or among false and true.
    A word that may also mean a missing value is a label among other words; in a later table, which
    has an `encoding`, if it was a label in training. In several columns, labels are numbers.
    """
    if len(positions) == 1:
        return (_of_column(table, positions[0], None if encoding is None else encoding.labels[0]),)
    forms = () if encoding is None else (each.form for each in encoding.labels)
    table = replace(table, forms={**table.forms, **dict(zip(positions, forms, strict=False))})
    return tuple(_of_numbers(table, position) for position in positions)


def rows_with_labels(labels: Sequence[TableLabels], rows: NDArray[np.int64]) -> RowLabels:
    """The labels of some rows, all of which have them; of several columns as of a matrix."""
    if not labels:
        return RowLabels()
    if len(labels) == 1:
        return RowLabels(labels[0].of(rows), labels[0].names)
    matrix = np.stack([each.values[rows] for each in labels], axis=1)
    return labels_of(matrix, len(rows), "labels")


def _of_numbers(table: Table, position: int) -> TableLabels:
    """The numbers of one of several label columns."""
    name, cells = table.names[position], table.columns[position]
    if isinstance(cells, DateColumn):
        raise _dates(table, name)
    column, unexpected = typed(table, position, "number")
    assert isinstance(column, NumberColumn)
    return TableLabels(column.values.astype(np.float64), (), unexpected, name, column)


def _of_column(table: Table, position: int, known: LabelColumn | None) -> TableLabels:
    """The labels of the only label column, which is read like the `known` one of the encoding."""
    kind, name, cells = None, table.names[position], table.columns[position]
    if known is not None:
        kind = "category" if known.kind == "category" else None
        table = replace(table, forms={**table.forms, position: known.form})
    column, unexpected = typed(table, position, kind)
    if isinstance(column, NumberColumn) and (
        known is not None or unexpected is not None or not _are_written_classes(cells, column)
    ):
        names = (False, True) if column.boolean else ()
        shown = example(cells, column) if known is None else ""
        notes: tuple[str, ...] = (f"column {quoted(name)}{shown}",) if shown else ()
        values = column.values.astype(np.float64, copy=False)
        return TableLabels(values, names, unexpected, name, column, notes)
    if isinstance(column, DateColumn):
        raise _dates(table, name)
    missing = NO_CELL if known is None else MISSING - set(map(str.lower, known.words))
    words = to_categories(cells).without(missing)
    texts = sorted(value for value, rows in zip(words.values, words.rows, strict=True) if rows)
    places = {text: n for n, text in enumerate(texts)}
    lookup = np.array([places.get(value, NO_VALUE) for value in words.values] + [NO_VALUE])
    codes = lookup[words.codes].astype(np.int32)
    values = np.where(codes == NO_VALUE, np.nan, codes)
    notes = () if known is not None else _notes(name, words)
    return TableLabels(values, tuple(texts), unexpected, name, CategoryColumn(codes, texts), notes)


def _dates(table: Table, name: str) -> DataError:
    return DataError(
        f"{table.source}: the label column {quoted(name)} contains dates; "
        "expected numbers, text, or the values true and false"
    )


def _are_written_classes(cells: Column, numbers: NumberColumn) -> bool:
    """Whether labels are classes that are not written as programs write numbers, such as 5%."""
    if not isinstance(cells, CategoryColumn):
        return False
    known = numbers.values[~numbers.missing]
    classes = len(np.unique(known)) == 2 or look_like_classes(known)
    return classes and any(number_of(text) is None for text in cells.without(MISSING).values)


def _notes(name: str, words: CategoryColumn) -> tuple[str, ...]:
    """A note about labels that may also stand for missing values."""
    found = [
        f"{quoted(value)} ({plural(count, 'row')})"
        for value, count in zip(words.values, words.rows.tolist(), strict=True)
        if count and value.lower() in MISSING
    ]
    if not found:
        return ()
    return (
        f"column {quoted(name)}: {' and '.join(found)} treated as labels like the other words; if "
        "they stand for missing labels, leave these cells empty",
    )
