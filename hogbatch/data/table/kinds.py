"""Inspection of a table: the kind of each column, and which columns are not used.

Columns are numbers, categories, dates or texts. Text columns are used on request only.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import numpy as np

from hogbatch.data.columns import TableForm, find, shown_names
from hogbatch.data.table.columns import (
    MISSING,
    CategoryColumn,
    Column,
    Kind,
    NumberColumn,
    Table,
    varies,
)
from hogbatch.data.table.typed import UnexpectedCells, typed
from hogbatch.data.table.written import (
    DECIMALS,
    Reading,
    are_one_measure,
    number_in,
    number_of,
    reading_of,
    usual_mark,
)
from hogbatch.errors import DataError
from hogbatch.machine.printable import digits, printable, quoted

Requested = Kind | Literal["drop", "weight", "group"]

MOSTLY_DISTINCT: Final = 0.95  # text with this fraction of distinct values identifies rows,
MIN_DISTINCT_ROWS: Final = 20  # if there are this many rows
ROW_NUMBER: Final = re.compile(
    r"(?i)(?:|index|unnamed.*|row ?(?:names?|num(?:ber)?|no)?|.*id|n[or]\.?|#)"
)
OTHER_USES: Final[dict[str | None, str]] = {
    "drop": "--drop",
    "weight": "--sample-weight",
    "group": "--group",
}
COUNTED: Final[dict[Kind, tuple[str, str]]] = {
    "number": ("numeric column", "numeric columns"),
    "category": ("categorical column", "categorical columns"),
    "date": ("date", "dates"),
    "text": ("text", "texts"),
    "sequence": ("sequence", "sequences"),
}


@dataclass(frozen=True, slots=True)
class TableOptions:
    """The user's settings for the columns of a table: names, or numbers from 0."""

    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    decimal: str | None = None  # decimal mark of columns with two readings
    constant: bool = False  # whether columns with one value are used
    weight: str | None = None  # the column with the weights of the rows
    group: str | None = None  # the column with the groups of the rows
    sequence: str = ""  # how the only text becomes a sequence of ids; other columns are not used

    @property
    def given(self) -> bool:
        """Whether any column is named."""
        return bool(self.drop or self.categorical or self.numeric or self.text)


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
    labels: tuple[int, ...]  # the positions of the label columns
    sequence: str = ""  # as in `TableOptions`


def requested(
    form: TableForm, options: TableOptions, labels: Sequence[int]
) -> dict[int, Requested]:
    """The kind that the user requests for each column, or what else it is for, by position.

    DataError for an unknown column, two kinds for one column, or one of the `labels`.
    """
    kinds: dict[int, Requested] = {}
    flags: dict[Requested, tuple[str, ...]] = {
        "drop": options.drop,
        "category": options.categorical,
        "number": options.numeric,
        "text": options.text,
        "weight": () if options.weight is None else (options.weight,),
        "group": () if options.group is None else (options.group,),
    }
    for kind, names in flags.items():
        for name in names:
            position = find(form, name, "")
            if position in labels:
                raise DataError(
                    f"{form.source}: column {quoted(name)} is the label column; expected another "
                    "column here, or another label column with --label"
                )
            if kinds.setdefault(position, kind) != kind:
                raise DataError(
                    f"{form.source}: column {quoted(name)} is named in two of --drop, "
                    "--categorical, --numeric, --text, --sample-weight and --group; expected it in "
                    "one"
                )
    return kinds


def inspect(table: Table, options: TableOptions, labels: tuple[int, ...]) -> Inspected:
    """Choose the kind of every column except the label columns at the positions `labels`."""
    wanted = requested(table.form, options, labels)
    table = _with_decimals(table, wanted, options.decimal)
    columns, kinds, shown = dict(table.columns), dict[int, Kind](), list(table.names)
    index = table.form.frame_index
    unexpected, unused = list[UnexpectedCells](), dict[int, str]()
    for position, name in enumerate(table.names):
        if position in labels:
            continue
        if (other := wanted.get(position)) in OTHER_USES:
            unused[position] = OTHER_USES[other]
            continue
        if options.sequence and other != "text":
            unused[position] = "--sequence"
            continue
        given = table.columns[position]
        declared = isinstance(given, CategoryColumn) and given.declared
        column, wrong = typed(table, position, other or ("category" if declared else None))
        used = position in wanted or (options.constant and not varies(column, table.numbers()))
        if not used and (reason := reason_to_drop(name, column, index=position in index)):
            unused[position] = reason
            del columns[position]
            continue
        shown[position] += example(columns[position], column)
        columns[position] = column
        kinds[position] = "sequence" if options.sequence else column.kind
        unexpected += filter(None, [wrong])
    note = _summary(table.names, shown, kinds, unused)
    summaries = tuple(
        ColumnSummary(
            name,
            "label" if position in labels else kinds.get(position),
            _missing_cells(columns.get(position, table.columns.get(position))),
            unused.get(position, ""),
        )
        for position, name in enumerate(table.names)
    )
    table = replace(table, columns=columns)
    return Inspected(table, kinds, tuple(unexpected), note, summaries, labels, options.sequence)


def _missing_cells(column: Column | None) -> int | None:
    return None if column is None else int(np.count_nonzero(column.missing))


def _with_decimals(table: Table, wanted: Mapping[int, Requested], decimal: str | None) -> Table:
    """Decide the decimal mark of each column of text that contains numbers.

    If a column has two readings, all columns must have one mark, or `decimal` must be given.
    """
    marks, readings = set[str](), dict[int, Reading]()
    for position, column in table.columns.items():
        if isinstance(column, NumberColumn):
            marks.add(column.form)
        elif isinstance(column, CategoryColumn) and wanted.get(position) in (None, "number"):
            reading = reading_of(column.without(MISSING))
            if reading is not None and are_one_measure(reading):
                readings[position] = reading
    forms = {
        n: (decimal or usual_mark(each, table.comma)) if each.doubtful else each.decimal
        for n, each in readings.items()
    }
    doubtful = [n for n, each in readings.items() if each.doubtful]
    if doubtful and decimal is None and len({*marks, *forms.values()} - {""}) > 1:
        name, text = table.names[doubtful[0]], readings[doubtful[0]].doubtful
        found = filter(None, (number_in(text, mark) for mark in DECIMALS))
        both = " or ".join(digits(number.value) for number in found)
        raise DataError(
            f"{table.source}: column {quoted(name)}: {quoted(text)} is {both}, because the table "
            "has decimal points and decimal commas; choose with --decimal . or --decimal , "
            "(decimal= in Python)"
        )
    return replace(table, forms=forms)


def example(text: Column, numbers: Column) -> str:
    """How a cell was read that is not a number for programs; empty if there is none."""
    if not isinstance(numbers, NumberColumn) or numbers.boolean:
        return ""
    if isinstance(text, CategoryColumn):
        for code, value in enumerate(text.values):
            if number_of(value) is None:
                cells = numbers.values[text.codes == code]
                if len(cells) and not np.isnan(cells[0]):
                    return f": {quoted(value)} is {digits(cells[0])}"
    return ""


def reason_to_drop(name: str, column: Column, *, index: bool = False) -> str | None:
    """Why a column is of no use as a feature, unless the user requests it; None if it may be.

    `index`: it is the index of a data frame.
    """
    if index:
        return "the index of a data frame; --numeric or --categorical uses it"
    present = ~column.missing
    rows = int(np.count_nonzero(present))
    if not rows:
        return "no values"
    if not varies(column, np.arange(len(column))):
        return "constant"
    if isinstance(column, CategoryColumn):
        distinct = np.count_nonzero(np.bincount(column.codes[present]))
        if distinct >= MOSTLY_DISTINCT * rows and rows >= MIN_DISTINCT_ROWS:
            return "text that differs in nearly every row; --text or --categorical uses it"
    if not isinstance(column, NumberColumn) or not ROW_NUMBER.fullmatch(name):
        return None
    running = rows > 2 and (np.diff(column.values) == 1).all()  # not if a value is missing
    return "numbers the rows; --numeric uses it" if running else None


def _summary(
    names: Sequence[str],
    shown: Sequence[str],
    kinds: Mapping[int, Kind],
    unused: Mapping[int, str],
) -> str:
    """The line about all columns; `shown` are their names with examples of cells."""
    parts = []
    for kind, (one, several) in COUNTED.items():
        some = [shown[position] for position, own in kinds.items() if own == kind]
        if some:
            count = f"{len(some)} {one if len(some) == 1 else several}"
            parts.append(f"{count} ({shown_names(some)})")
    line = f"columns: {', '.join(parts) or 'none'}"
    reasons = [f"{printable(names[n])} ({reason})" for n, reason in unused.items()]
    return f"{line}; not used: {shown_names(reasons)}" if reasons else line
