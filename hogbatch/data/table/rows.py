"""The rows of a table that are used, their weights and their groups."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.columns import find
from hogbatch.data.order import Groups
from hogbatch.data.raw import ReadOptions
from hogbatch.data.skipped import MAX_REPORTED, NONE_SKIPPED, LineError, SkippedLines
from hogbatch.data.table.columns import DateColumn, NumberColumn, Table, to_categories
from hogbatch.data.table.labels import TableLabels
from hogbatch.data.table.typed import UnexpectedCells, typed
from hogbatch.data.weights import used_rows
from hogbatch.errors import DataError, UsageError
from hogbatch.machine.printable import digits, quoted


def weighted_rows(table: Table, name: str | None) -> tuple[Table, NDArray[np.float64] | None]:
    """The rows of weight above 0, and their weights from column `name`, which is left out.

    Without a name: all rows, and None. DataError for a cell that is not a number of at least 0.
    """
    if name is None:
        return table, None
    position = find(table.form, name, "weight")
    column, wrong = typed(table, position, "number")
    if wrong is not None:
        raise DataError(f"{table.locate(int(wrong.rows[0]))}: {wrong.complaint}, the row's weight")
    assert isinstance(column, NumberColumn)
    weights = column.values.astype(np.float64)
    expected = f"column {quoted(name)}: expected a weight"
    for row in np.flatnonzero(~(weights >= 0))[:1].tolist():
        got = "a missing value" if np.isnan(weights[row]) else digits(weights[row])
        raise DataError(f"{table.locate(row)}: {expected} of at least 0; got {got}")
    if not weights.any():
        raise DataError(f"{table.source}: {expected} above 0; got only zeros")
    columns = {n: each for n, each in table.columns.items() if n != position}
    kept, own = used_rows(weights, len(weights))
    table = replace(table, columns=columns)
    return (table if kept is None else table.of_rows(kept)), own


def grouped_rows(table: Table, group: str | None, time: str | None) -> Groups | None:
    """The groups of the rows: the values of column `group`, or of `time` in ascending order.

    Without names: None. UsageError for two names. DataError for missing values, times that are
    neither numbers nor dates.
    """
    if group is not None and time is not None:
        raise UsageError(
            "--group and --time split the rows in different ways; expected one of them"
        )
    name, use = (group, "group") if time is None else (time, "time")
    if name is None:
        return None
    column, wrong = typed(table, find(table.form, name, use), "category" if time is None else None)
    if wrong is not None:
        raise DataError(f"{table.locate(int(wrong.rows[0]))}: {wrong.complaint}, the row's {use}")
    expected = f"column {quoted(name)}: expected a {use} in each row"
    for row in np.flatnonzero(column.missing)[:1].tolist():
        raise DataError(f"{table.locate(row)}: {expected}; got a missing value")
    if isinstance(column, NumberColumn | DateColumn):
        numbers = np.unique(column.values, return_inverse=True)[1]
    else:
        texts = to_categories(column)
        if time is not None:
            got = quoted(texts.values[texts.codes[0]])
            raise DataError(f"{table.locate(0)}: {expected}, a number or date; got {got}")
        numbers = np.unique(np.array(texts.values), return_inverse=True)[1][texts.codes]
    return Groups(numbers, f"{table.source}: column {quoted(name)}", ordered=time is not None)


class UnexpectedCell(DataError):
    """A cell cannot be read as the kind of its column requires."""


class UsableRows(NamedTuple):
    """The rows of a table that can be used."""

    kept: NDArray[np.int64] | None  # ascending; None: all
    skipped: SkippedLines
    notes: tuple[str, ...]  # about rows without a label


def usable_rows(
    table: Table,
    unexpected: Sequence[UnexpectedCells],
    labels: Sequence[TableLabels],
    options: ReadOptions,
) -> UsableRows:
    """The rows without unexpected cells and with a label in each of the columns of `labels`.

    Rows without a label are left out: nothing can be learned from them. DataError for the first
    unexpected cell, unless --bad-lines permits them.
    """
    unexpected = (*unexpected, *filter(None, [each.unexpected for each in labels]))
    bad = [each for each in unexpected if len(each.rows)]
    rows = np.unique(np.concatenate([each.rows for each in bad])) if bad else np.empty(0, np.int64)
    if len(rows) and not options.bad_lines:
        raise _unexpected_error(table, bad, len(rows), options)
    lacking = [each for each in labels if np.isnan(each.values).any()]
    absent = [np.flatnonzero(np.isnan(each.values)) for each in lacking]
    missing = np.setdiff1d(np.concatenate([rows[:0], *absent]), rows)
    if not len(rows) and not len(missing):
        return UsableRows(None, NONE_SKIPPED, ())
    usable = np.setdiff1d(np.arange(table.rows), np.concatenate([rows, missing]))
    skipped = _skipped_rows(table, bad, rows)
    if not len(missing):
        return UsableRows(usable, skipped, ())
    names = ", ".join(quoted(each.name) for each in lacking)
    where = f"column{'s' if len(lacking) > 1 else ''} {names}"
    if not len(usable) and not len(rows):
        raise DataError(f"{table.source}: expected labels in {where}; got none in any row")
    some = f"{len(missing):,} rows without a label" if len(missing) > 1 else "a row without a label"
    note = f"{some} ({where}) {'are' if len(missing) > 1 else 'is'} left out"
    return UsableRows(usable, skipped, (note,))


def _skipped_rows(
    table: Table, bad: Sequence[UnexpectedCells], rows: NDArray[np.int64]
) -> SkippedLines:
    """The `rows` with unexpected cells, as skipped lines."""
    if not len(rows):
        return NONE_SKIPPED
    reported = rows[:MAX_REPORTED].tolist()
    lines = table.lines(reported)
    reasons = {
        line: next(each.complaint for each in bad if row in each.rows)
        for row, line in zip(reported, lines, strict=True)
    }
    return SkippedLines.of(
        [*lines, *rows[MAX_REPORTED:].tolist()], lambda line: LineError(None, reasons[line])
    )


def _unexpected_error(
    table: Table, bad: Sequence[UnexpectedCells], rows: int, options: ReadOptions
) -> DataError:
    """The error for the first unexpected cell; only in training may its column get another kind."""
    first = min(bad, key=lambda each: int(each.rows[0]))
    problem = f"{table.locate(int(first.rows[0]))}: {first.complaint}"
    if not options.labels:
        return UnexpectedCell(problem)
    fraction = np.ceil(1000 * rows / table.rows) / 1000
    some = f"all {rows:,} such rows" if rows > 1 else "the row"
    skip = f"leave {some} out with --bad-lines {fraction:g}"
    if first.word and options.table is not None:
        name = table.names[first.position]
        return UnexpectedCell(
            f"{problem}; if it is a category, use --categorical {name}, else {skip}"
        )
    return UnexpectedCell(f"{problem}; correct the row, or {skip}")
