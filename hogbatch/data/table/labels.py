"""The labels of a table."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.encode import look_like_classes
from hogbatch.data.raw import LabelNames
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
from hogbatch.data.table.encoding import TableEncoding
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


def table_labels(table: Table, position: int, encoding: TableEncoding | None = None) -> TableLabels:
    """The labels of a table: numbers, or places among the sorted texts, or among false and true.

    A word that may also mean a missing value is a label among other words; in a later table, which
    has an `encoding`, if it was a label in training.
    """
    kind, name, cells = None, table.names[position], table.columns[position]
    if encoding is not None:
        kind = "category" if encoding.label_kind == "category" else None
        table = replace(table, forms={**table.forms, position: encoding.label_form})
    column, unexpected = typed(table, position, kind)
    if isinstance(column, NumberColumn) and (
        encoding is not None or unexpected is not None or not _are_written_classes(cells, column)
    ):
        names = (False, True) if column.boolean else ()
        shown = example(cells, column) if encoding is None else ""
        notes: tuple[str, ...] = (f"column {quoted(name)}{shown}",) if shown else ()
        values = column.values.astype(np.float64, copy=False)
        return TableLabels(values, names, unexpected, name, column, notes)
    if isinstance(column, DateColumn):
        raise DataError(
            f"{table.source}: the label column {quoted(name)} contains dates; "
            "expected numbers, text, or the values true and false"
        )
    missing = NO_CELL if encoding is None else MISSING - set(map(str.lower, encoding.label_words))
    words = to_categories(cells).without(missing)
    texts = sorted(value for value, rows in zip(words.values, words.rows, strict=True) if rows)
    places = {text: n for n, text in enumerate(texts)}
    lookup = np.array([places.get(value, NO_VALUE) for value in words.values] + [NO_VALUE])
    codes = lookup[words.codes].astype(np.int32)
    values = np.where(codes == NO_VALUE, np.nan, codes)
    notes = () if encoding is not None else _notes(name, words)
    return TableLabels(values, tuple(texts), unexpected, name, CategoryColumn(codes, texts), notes)


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
