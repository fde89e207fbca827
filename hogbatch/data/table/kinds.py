"""Inspection of a table: the kind of each column, and which columns are not used.

Columns are numbers, categories, dates or texts. Text columns are used on request only.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.columns import FRAME_INDEX, TableForm, find
from hogbatch.data.table.columns import (
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    Table,
    TextColumn,
    number_of,
    to_categories,
    to_texts,
)
from hogbatch.data.table.dates import seconds_of
from hogbatch.data.text import FLOAT32_LIMIT
from hogbatch.errors import DataError
from hogbatch.machine.printable import printable, quoted

Kind = Literal["number", "category", "date", "text"]
Requested = Kind | Literal["drop"]

MOSTLY_NUMBERS: Final = 0.95  # a column with this fraction of numbers has no words
MOSTLY_DISTINCT: Final = 0.95  # text with this fraction of distinct values identifies rows,
MIN_DISTINCT_ROWS: Final = 20  # if there are this many rows
ROW_NUMBER: Final = re.compile(
    r"(?i)(?:|index|unnamed.*|row ?(?:names?|num(?:ber)?|no)?|.*id|n[or]\.?|#)"
)
TRUTHS: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
MAX_SHOWN_NAMES: Final = 12  # in the summary
COUNTED: Final[dict[Kind, tuple[str, str]]] = {
    "number": ("numeric column", "numeric columns"),
    "category": ("categorical column", "categorical columns"),
    "date": ("date", "dates"),
    "text": ("text", "texts"),
}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The user's settings for the columns of a table: names, or numbers from 0."""

    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    scale: str = "auto"

    @property
    def given(self) -> bool:
        """Whether any column is named."""
        return bool(self.drop or self.categorical or self.numeric or self.text)


class UnexpectedCells(NamedTuple):
    """The cells of a column that cannot be read as its kind requires."""

    rows: NDArray[np.int64]  # ascending
    position: int  # of the column
    complaint: str  # about the first
    word: bool = False  # the first is a word in a column of numbers


class ColumnSummary(NamedTuple):
    """What becomes of a column of a training table."""

    name: str
    kind: Kind | Literal["label"] | None  # None: it is not used
    missing: int | None  # cells without a value; None: the column is not read
    unused: str = ""  # why it is not used


class Inspected(NamedTuple):
    """A table with the columns converted to their kinds."""

    table: Table
    kinds: Mapping[int, Kind]  # by position, of the columns that are features
    unexpected: tuple[UnexpectedCells, ...]
    note: str  # one line about the kinds of all columns
    summaries: tuple[ColumnSummary, ...]  # of all columns


def requested(form: TableForm, options: TableOptions, label: int | None) -> dict[int, Requested]:
    """The kind that the user requests for each column, or "drop", by position.

    DataError for an unknown column, two kinds for one column, or the label column.
    """
    kinds: dict[int, Requested] = {}
    flags: dict[Requested, tuple[str, ...]] = {
        "drop": options.drop,
        "category": options.categorical,
        "number": options.numeric,
        "text": options.text,
    }
    for kind, names in flags.items():
        for name in names:
            position = find(form, name, "")
            if position == label:
                raise DataError(
                    f"{form.source}: column {quoted(name)} is the label column; expected another "
                    "column here, or another label column with --label"
                )
            if kinds.setdefault(position, kind) != kind:
                raise DataError(
                    f"{form.source}: column {quoted(name)} is named in two of --drop, "
                    "--categorical, --numeric and --text; expected it in one of them"
                )
    return kinds


def inspect(table: Table, options: TableOptions, label: int) -> Inspected:
    """Choose the kind of every column except the label column at position `label`."""
    wanted = requested(table.form, options, label)
    columns, kinds = dict(table.columns), dict[int, Kind]()
    unexpected, unused = list[UnexpectedCells](), dict[int, str]()
    for position, name in enumerate(table.names):
        if position == label:
            continue
        if wanted.get(position) == "drop":
            unused[position] = "--drop"
            continue
        column, wrong = typed(table, position, wanted.get(position))
        reason = None if position in wanted else reason_to_drop(name, column)
        if reason:
            unused[position] = reason
            del columns[position]
            continue
        columns[position], kinds[position] = column, kind_of(column)
        unexpected += filter(None, [wrong])
    note = _summary(table, kinds, unused)
    summaries = tuple(
        ColumnSummary(
            name,
            "label" if position == label else kinds.get(position),
            _missing_cells(columns.get(position, table.columns.get(position))),
            unused.get(position, ""),
        )
        for position, name in enumerate(table.names)
    )
    return Inspected(replace(table, columns=columns), kinds, tuple(unexpected), note, summaries)


def _missing_cells(column: Column | None) -> int | None:
    return None if column is None else int(np.count_nonzero(column.missing))


def kind_of(column: Column) -> Kind:
    """The kind of a column by its type."""
    match column:
        case NumberColumn():
            return "number"
        case CategoryColumn():
            return "category"
        case DateColumn():
            return "date"
        case TextColumn():
            return "text"


def typed(table: Table, position: int, kind: str | None) -> tuple[Column, UnexpectedCells | None]:
    """A column as the `kind` that is requested, or that its values suggest if that is None.

    Cells that cannot be read as numbers become missing, and are reported.
    """
    column = table.columns[position]
    match kind:
        case "category":
            return to_categories(column), None
        case "text":
            return to_texts(column), None
        case "date":
            return _dates(table, position, column)
    if isinstance(column, CategoryColumn) and (truths := _truths(column)) is not None:
        column = truths
    if isinstance(column, CategoryColumn) and (kind == "number" or _mostly_numbers(column)):
        return _numbers(table, position, column)
    if isinstance(column, CategoryColumn) and (seconds := _seconds(column)) is not None:
        return DateColumn(seconds), None
    if isinstance(column, DateColumn) and kind == "number":
        column = NumberColumn(column.seconds)
    if isinstance(column, NumberColumn):
        return _finite(table, position, column)
    return column, None


def _truths(column: CategoryColumn) -> NumberColumn | None:
    """The text true and false as a column of booleans; None for other text."""
    found = [TRUTHS.get(value) for value in column.values]
    if not found or None in found:
        return None
    return NumberColumn(np.array([*found, np.nan], np.float64)[column.codes], boolean=True)


def _mostly_numbers(column: CategoryColumn) -> bool:
    """Whether nearly all cells with a value are numbers."""
    numbers = [number_of(value) is not None for value in column.values]
    if not any(numbers):
        return False
    rows = np.bincount(column.codes[~column.missing], minlength=len(numbers))
    return bool(rows[numbers].sum() >= MOSTLY_NUMBERS * rows.sum() > 0)


def _numbers(
    table: Table, position: int, column: CategoryColumn
) -> tuple[Column, UnexpectedCells | None]:
    """Convert text to numbers; report words and numbers beyond float32, which become missing."""
    found = [number_of(value) for value in column.values]
    usable = np.array([n is not None and abs(n) < FLOAT32_LIMIT for n in found] + [True], np.bool_)
    lookup = np.array([np.nan if n is None else n for n in found] + [np.nan], np.float64)
    lookup[~usable] = np.nan
    rows = np.flatnonzero(~usable[column.codes])
    if not len(rows):
        return NumberColumn(lookup[column.codes]), None
    first = column.codes[rows[0]]
    what = "a number" if found[first] is None else "a finite number within float32"
    name, got = quoted(table.names[position]), quoted(column.values[first])
    complaint = f"column {name}: expected {what}; got {got}"
    return NumberColumn(lookup[column.codes]), UnexpectedCells(rows, position, complaint, word=True)


def _finite(
    table: Table, position: int, column: NumberColumn
) -> tuple[Column, UnexpectedCells | None]:
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


def _dates(table: Table, position: int, column: Column) -> tuple[Column, UnexpectedCells | None]:
    """Convert text to dates, for a model that was trained with dates; report other cells."""
    if isinstance(column, DateColumn):
        return column, None
    cells = to_categories(column)
    if (seconds := _seconds(cells)) is not None:
        return DateColumn(seconds), None
    dates = [n for n, value in enumerate(cells.values) if seconds_of([value]) is not None]
    lookup = np.full(len(cells.values) + 1, np.nan)
    lookup[dates] = seconds_of([cells.values[n] for n in dates])  # None, as NaN: several formats
    rows = np.flatnonzero(np.isnan(lookup[cells.codes]) & ~cells.missing)
    if not len(rows):
        return DateColumn(lookup[cells.codes]), None
    cell = quoted(cells.values[cells.codes[rows[0]]])
    complaint = f"column {quoted(table.names[position])}: expected a date; got {cell}"
    return DateColumn(lookup[cells.codes]), UnexpectedCells(rows, position, complaint)


def _seconds(column: CategoryColumn) -> NDArray[np.float64] | None:
    """The seconds of a column of dates in text; None for other text."""
    found = seconds_of(column.values)
    return None if found is None else np.append(found, np.nan)[column.codes]


def reason_to_drop(name: str, column: Column) -> str | None:
    """Why a column is of no use as a feature, unless the user requests it; None if it may be."""
    present = ~column.missing
    rows = int(np.count_nonzero(present))
    if not rows:
        return "no values"
    if isinstance(column, TextColumn):
        return None
    if isinstance(column, CategoryColumn):
        distinct = np.count_nonzero(np.bincount(column.codes[present]))
        if distinct >= MOSTLY_DISTINCT * rows and rows >= MIN_DISTINCT_ROWS:
            return "text that differs in nearly every row; --text or --categorical uses it"
        return "constant" if distinct == 1 and rows == len(column) else None
    cells = column.values if isinstance(column, NumberColumn) else column.seconds
    known = cells if rows == len(column) else cells[present]
    if rows == len(column) and (known == known[0]).all():
        return "constant"
    if isinstance(column, NumberColumn) and FRAME_INDEX.fullmatch(name):
        return "the index of a data frame; --numeric uses it"
    if not isinstance(column, NumberColumn) or not ROW_NUMBER.fullmatch(name):
        return None
    running = rows > 2 and rows == len(column) and (np.diff(known) == 1).all()
    return "numbers the rows; --numeric uses it" if running else None


def _summary(table: Table, kinds: Mapping[int, Kind], unused: Mapping[int, str]) -> str:
    parts = []
    for kind, (one, several) in COUNTED.items():
        names = [table.names[position] for position, own in kinds.items() if own == kind]
        if names:
            count = f"{len(names)} {one if len(names) == 1 else several}"
            parts.append(f"{count} ({shown_names(names)})")
    line = f"columns: {', '.join(parts) or 'none'}"
    reasons = [f"{printable(table.names[n])} ({reason})" for n, reason in unused.items()]
    return f"{line}; not used: {shown_names(reasons)}" if reasons else line


def shown_names(names: Sequence[str]) -> str:
    """The first names, and the number of further names."""
    more = f" and {len(names) - MAX_SHOWN_NAMES} more" if len(names) > MAX_SHOWN_NAMES else ""
    return ", ".join(map(printable, names[:MAX_SHOWN_NAMES])) + more
