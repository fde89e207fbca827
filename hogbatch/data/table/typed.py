"""Conversion of a column of a table to the kind that is requested, or that its values suggest."""

from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.table.columns import (
    MISSING,
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    Table,
    to_categories,
    to_texts,
)
from hogbatch.data.table.dates import ISO, format_of, seconds_in
from hogbatch.data.table.written import MOSTLY, Reading, are_one_measure, reading_of, usual_mark
from hogbatch.data.text import FLOAT32_LIMIT
from hogbatch.machine.printable import quoted

TRUTHS: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class UnexpectedCells(NamedTuple):
    """The cells of a column that cannot be read as its kind requires."""

    rows: NDArray[np.int64]  # ascending
    position: int  # of the column
    complaint: str  # about the first
    word: bool = False  # the first is text in a column of numbers or dates


Typed: TypeAlias = tuple[Column, UnexpectedCells | None]


def typed(table: Table, position: int, kind: str | None) -> Typed:
    """A column as the `kind` that is requested, or that its values suggest if that is None.

    Cells that cannot be read as numbers become missing, and are reported.
    """
    column = table.columns[position]
    if isinstance(column, CategoryColumn):
        column = column.without(MISSING)
    match kind:
        case "category":
            return to_categories(column), None
        case "text" | "sequence":
            return to_texts(column), None
        case "date":
            return _known_dates(table, position, column)
    if isinstance(column, CategoryColumn) and (truths := _truths(column)) is not None:
        column = truths
    if isinstance(column, CategoryColumn):
        if (reading := _reading(table, position, column, kind)) is not None:
            return _numbers(table, position, column, reading)
        form = format_of(column.values, column.rows, MOSTLY)
        return (column, None) if form is None else _dates(table, position, column, form)
    if isinstance(column, DateColumn) and kind == "number":
        column = NumberColumn(column.values)
    if isinstance(column, NumberColumn):
        return _finite(table, position, column)
    return column, None


def _truths(column: CategoryColumn) -> NumberColumn | None:
    """The text true and false as a column of booleans; None for other text."""
    rows = column.rows.tolist()
    used = [value for value, count in zip(column.values, rows, strict=True) if count]
    if not used or any(value not in TRUTHS for value in used):
        return None
    found = [TRUTHS.get(value, False) for value in column.values]
    return NumberColumn(np.array([*found, np.nan], np.float64)[column.codes], boolean=True)


def _reading(
    table: Table, position: int, column: CategoryColumn, kind: str | None
) -> Reading | None:
    """The numbers of a column of text; None if it does not contain numbers, unless it must."""
    least = 0 if kind == "number" else MOSTLY
    reading = reading_of(column, least=least)
    if reading is not None and reading.doubtful:
        known = table.forms.get(position) or usual_mark(reading, table.comma)
        reading = reading_of(column, known, least)
    if reading is None or kind == "number" or are_one_measure(reading):
        return reading
    return None


def _numbers(table: Table, position: int, column: CategoryColumn, reading: Reading) -> Typed:
    """Convert text to numbers; report words and numbers beyond float32, which become missing."""
    found = [
        np.nan if number is None or abs(number.value) >= FLOAT32_LIMIT else number.value
        for number in reading.numbers
    ]
    cells = np.array([*found, np.nan], np.float64)[column.codes]
    numbers = NumberColumn(cells, reading.decimal, whole=reading.whole)
    rows = np.flatnonzero(np.isnan(cells) & ~column.missing)
    if not len(rows):
        return numbers, None
    first = column.codes[rows[0]]
    what = "a number" if reading.numbers[first] is None else "a finite number within float32"
    name, got = quoted(table.names[position]), quoted(column.values[first])
    complaint = f"column {name}: expected {what}; got {got}"
    return numbers, UnexpectedCells(rows, position, complaint, word=True)


def _finite(table: Table, position: int, column: NumberColumn) -> Typed:
    """Report infinite numbers, and those beyond the range of float32."""
    low, high = float(column.values.min(initial=0)), float(column.values.max(initial=0))
    if low > -FLOAT32_LIMIT and high < FLOAT32_LIMIT:  # not if a value is missing
        return column, None
    rows = np.flatnonzero(np.abs(column.values.astype(np.float64, copy=False)) >= FLOAT32_LIMIT)
    if not len(rows):
        return column, None
    name, number = quoted(table.names[position]), column.values[rows[0]]
    complaint = f"column {name}: expected a finite number within float32; got {number}"
    return column, UnexpectedCells(rows, position, complaint)


def _known_dates(table: Table, position: int, column: Column) -> Typed:
    """The dates of a column, in the format of the training table if any cell has it."""
    if isinstance(column, DateColumn):
        return column, None
    cells = to_categories(column)
    form = table.forms.get(position, "")
    if not form or np.isnan(seconds_in(cells.values, form)).all():
        form = format_of(cells.values, cells.rows, 0) or ISO
    return _dates(table, position, cells, form)


def _dates(table: Table, position: int, cells: CategoryColumn, form: str) -> Typed:
    """Convert text to dates; other text becomes missing, and is reported."""
    seconds = np.append(seconds_in(cells.values, form), np.nan)[cells.codes]
    rows = np.flatnonzero(np.isnan(seconds) & ~cells.missing)
    if not len(rows):
        return DateColumn(seconds, form), None
    cell = quoted(cells.values[cells.codes[rows[0]]])
    complaint = f"column {quoted(table.names[position])}: expected a date; got {cell}"
    return DateColumn(seconds, form), UnexpectedCells(rows, position, complaint, word=True)
