"""The rows of a table that can be used: those without unexpected cells, with a label."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.raw import ReadOptions
from hogbatch.data.skipped import MAX_REPORTED, NONE_SKIPPED, LineError, SkippedLines
from hogbatch.data.table.columns import Table
from hogbatch.data.table.labels import TableLabels
from hogbatch.data.table.typed import UnexpectedCells
from hogbatch.errors import DataError
from hogbatch.machine.printable import quoted


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
