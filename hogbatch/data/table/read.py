"""Reading a table: a CSV file, a Parquet, Arrow or Feather file, or a folder of files.

A training table is inspected, and encoded after the split. A later table is encoded at once, with
the encoding of the training table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import dense_inputs
from hogbatch.data.raw import Columns, LabelNames, RawSet, ReadOptions
from hogbatch.data.signatures import MAX_MAGIC_BYTES, is_columnar
from hogbatch.data.skipped import MAX_REPORTED, NONE_SKIPPED, LineError, SkippedLines
from hogbatch.data.source import Source
from hogbatch.data.table.columns import CategoryColumn, Column, NumberColumn, Place, Table, joined
from hogbatch.data.table.dialect import Dialect, examine, lines_of
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.kinds import (
    Kind,
    TableOptions,
    UnexpectedCells,
    find,
    inspect,
    requested,
    typed,
)
from hogbatch.errors import DataError
from hogbatch.machine.printable import quoted

COLUMNAR: Final = (".parquet", ".feather", ".arrow", ".ipc")


class MixedColumn(DataError):
    """A column of numbers has some words; `advice` names the flag for a column of categories."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(f"{message}; {advice}")
        self.advice = advice


class TableFile(NamedTuple):
    """A file, or a folder of files, with the names of its columns."""

    source: Source
    files: Sequence[Source]  # of CSV text; empty for other files
    dialect: Dialect | None  # of CSV text
    names: tuple[str, ...]
    named: bool


class TableLabels(NamedTuple):
    """The labels of all rows of a table."""

    values: NDArray[np.float64]  # [M], NaN where missing
    names: LabelNames  # if the values are places in it
    unexpected: UnexpectedCells | None


def is_columnar_file(source: Source) -> bool:
    """Whether a path is a Parquet, Arrow or Feather file, or a folder."""
    if source.path.is_dir():
        return True
    with source.open() as file:
        return is_columnar(file.read(MAX_MAGIC_BYTES))


def is_plain(source: Source, options: ReadOptions) -> bool:
    """Whether the first rows of a CSV file contain only numbers and plain delimiters."""
    return examine(source, options).numeric


def read(source: Source, options: ReadOptions) -> RawSet:
    """Read a table for training, or, with `options.encoding`, for a model.

    DataError names file, line and column of the first cell or row that cannot be read.
    """
    source.begin_reading()
    file = open_table(source, options)
    if options.encoding is None:
        return _for_training(file, options)
    return _for_model(file, options, options.encoding)


def open_table(source: Source, options: ReadOptions) -> TableFile:
    """Determine the kind of file and the names of its columns."""
    if not source.path.is_dir():
        if is_columnar_file(source):
            return _columnar(source)
        dialect = examine(source, options)
        return TableFile(source, (source,), dialect, dialect.names, dialect.named)
    paths = sorted(
        each
        for each in source.path.rglob("*")
        if each.is_file() and not each.name.startswith((".", "_"))
    )
    if not paths:
        raise DataError(f"{source}: expected a file, or a folder of table files; got no file in it")
    if paths[0].suffix.lower() in COLUMNAR:
        return _columnar(source)
    files = [Source(each, progress=source.progress) for each in paths]
    dialects = [examine(each, options) for each in files]
    for other, dialect in zip(files, dialects, strict=True):
        if dialect.names != dialects[0].names:
            raise DataError(f"{other}: expected the columns of {files[0]} in the same order")
    return TableFile(source, files, dialects[0], dialects[0].names, dialects[0].named)


def _columnar(source: Source) -> TableFile:
    from hogbatch.data.table.arrow.files import column_names  # here: PyArrow is large

    names = column_names(source.path, str(source))
    return TableFile(source, (), None, names, True)


def _for_training(file: TableFile, options: ReadOptions) -> RawSet:
    table_options = options.table or TableOptions()
    form = Table(str(file.source), file.names, {}, file.named)
    label = len(file.names) - 1 if options.label is None else find(form, options.label, "label")
    if len(file.names) < 2:
        raise DataError(f"{file.source}: expected features and a label; got one column")
    wanted = requested(form, table_options, label)
    kinds = {
        n: kind if kind in ("category", "text") else None
        for n in range(len(file.names))
        if (kind := wanted.get(n)) != "drop"
    }
    table, skipped = read_columns(file, kinds, options)
    inspected = inspect(table, table_options, label)
    if not inspected.kinds:
        raise DataError(f"{file.source}: no column can be used as a feature; {inspected.note}")
    labels = _labels(table, label, None)
    unexpected = (*inspected.unexpected, *filter(None, [labels.unexpected]))
    usable = _usable(table, unexpected, label, labels, options)
    kept = usable.kept
    columns = {**inspected.table.columns, label: _label_column(labels, table.columns[label])}
    inspected = inspected._replace(table=replace(inspected.table, columns=columns, kept=kept))
    notes = (*_notes(file), inspected.note, *filter(None, [usable.note]))
    rows = inspected.table.rows
    skipped = _expect_rows(file, SkippedLines.of_parts([skipped, usable.skipped]), rows, options)
    return RawSet(
        inputs=dense_inputs(np.empty((rows, 0), np.float32)),
        features=0,
        labels=labels.values if kept is None else labels.values[kept],
        label_lists=None,
        source=str(file.source),
        skipped=skipped,
        columns=Columns((), file.names[label] if file.named else None, label),
        notes=notes,
        label_names=labels.names,
        table=inspected,
    )


def _expect_rows(
    file: TableFile, skipped: SkippedLines, rows: int, options: ReadOptions
) -> SkippedLines:
    """DataError if there are no rows, or more skipped lines than permitted."""
    if not rows and not skipped.total:
        raise DataError(f"{file.source} has no rows")
    skipped.check(file.source, rows, options.bad_lines)
    return skipped


def _label_column(labels: TableLabels, column: Column) -> Column:
    """The label column as it is read: text, or numbers."""
    if isinstance(column, CategoryColumn) and labels.names:
        return column
    return NumberColumn(labels.values, boolean=labels.names == (False, True))


def _for_model(file: TableFile, options: ReadOptions, encoding: TableEncoding) -> RawSet:
    form = Table(str(file.source), file.names, {}, file.named)
    kinds: dict[int, Kind | None] = {
        position: column.encoder.kind
        for position, column in zip(encoding.match(form), encoding.columns, strict=True)
    }
    label = _known_label(form, options.label, encoding) if options.labels else None
    if label is not None:
        kinds[label] = encoding.label_kind
    table, skipped = read_columns(file, kinds, options)
    adapted, unexpected = encoding.converted(table)
    labels = None if label is None else _labels(table, label, encoding.label_kind)
    notes = _notes(file)
    if label is None or labels is None:
        for cells in unexpected:
            raise DataError(f"{table.locate(int(cells.rows[0]))}: {cells.complaint}")
    else:
        unexpected = (*unexpected, *filter(None, [labels.unexpected]))
        usable = _usable(table, unexpected, label, labels, options)
        table, adapted = (replace(each, kept=usable.kept) for each in (table, adapted))
        skipped = SkippedLines.of_parts([skipped, usable.skipped])
        notes = (*notes, *filter(None, [usable.note]))
    skipped = _expect_rows(file, skipped, table.rows, options)
    return RawSet(
        inputs=encoding.transform(adapted),
        features=encoding.features,
        labels=None if labels is None else labels.values[table.numbers()],
        label_lists=None,
        source=str(file.source),
        skipped=skipped,
        columns=Columns((), None if label is None else file.names[label], label),
        notes=notes,
        label_names=() if labels is None else labels.names,
    )


def _known_label(form: Table, label: str | None, encoding: TableEncoding) -> int | None:
    """The position of the label column of a later table; None if it has none."""
    if label is not None:
        return find(form, label, "label")
    if encoding.named and form.named:
        return (
            find(form, encoding.label_name, "label") if encoding.label_name in form.names else None
        )
    return encoding.label if len(form.names) == encoding.width else None


def _notes(file: TableFile) -> tuple[str, ...]:
    return (file.dialect.note,) if file.dialect is not None and file.dialect.note else ()


def read_columns(
    file: TableFile, kinds: Mapping[int, Kind | None], options: ReadOptions
) -> tuple[Table, SkippedLines]:
    """Read the columns in `kinds`, by position."""
    if file.dialect is None:
        from hogbatch.data.table.arrow.files import read_columnar  # here: PyArrow is large

        wanted = {file.names[position]: kind for position, kind in kinds.items()}
        found = read_columnar(file.source.path, str(file.source), wanted)
        columns = {position: found[file.names[position]] for position in kinds}
        return Table(str(file.source), file.names, columns, file.named), NONE_SKIPPED
    from hogbatch.data.table.arrow.text import read_csv  # here: PyArrow is large

    parts, skipped, files = list[dict[int, Column]](), list[SkippedLines](), list[CsvPart]()
    for source in file.files:
        dialect = examine(source, options) if len(file.files) > 1 else file.dialect
        own, lines, wrong = read_csv(source, dialect, kinds, skip=options.bad_lines > 0)
        parts.append(own)
        skipped.append(wrong)
        rows = len(next(iter(own.values())))
        files.append(CsvPart(source, dialect, rows, lines == rows))
    columns = {position: joined([part[position] for part in parts]) for position in kinds}
    places = partial(_places, files)
    table = Table(str(file.source), file.names, columns, file.named, places)
    return table, SkippedLines.of_parts(skipped)


class CsvPart(NamedTuple):
    """The rows of one file of a table."""

    source: Source
    dialect: Dialect
    rows: int
    one_each: bool  # every line is a row


def _places(parts: Sequence[CsvPart], rows: Sequence[int]) -> list[Place]:
    """The places of ascending rows."""
    places, first = list[Place](), 0
    for part in parts:
        own = [row - first for row in rows if first <= row < first + part.rows]
        start = part.dialect.first_line
        if part.one_each:
            lines = [start + row for row in own]
        else:
            lines = list(lines_of(part.source, part.dialect, own))
        places += (Place(str(part.source), line) for line in lines)
        first += part.rows
    return places


def _labels(table: Table, position: int, kind: Kind | None) -> TableLabels:
    """The labels of a table: numbers, or places among the sorted texts, or among false and true."""
    column, unexpected = typed(table, position, kind)
    if isinstance(column, NumberColumn):
        return TableLabels(column.values, (False, True) if column.boolean else (), unexpected)
    if not isinstance(column, CategoryColumn):
        raise DataError(
            f"{table.source}: the label column {quoted(table.names[position])} contains dates; "
            "expected numbers, text, or the values true and false"
        )
    codes = column.codes[~column.missing]
    used = np.unique(codes)
    names = sorted(column.values[code] for code in used)
    places = {name: n for n, name in enumerate(names)}
    lookup = np.array([places.get(v, np.nan) for v in column.values] + [np.nan], np.float64)
    return TableLabels(lookup[column.codes], tuple(names), unexpected)


class UsableRows(NamedTuple):
    """The rows of a table that can be used."""

    kept: NDArray[np.int64] | None  # ascending; None: all
    skipped: SkippedLines
    note: str | None  # about rows without a label


def _usable(
    table: Table,
    unexpected: Sequence[UnexpectedCells],
    label: int,
    labels: TableLabels,
    options: ReadOptions,
) -> UsableRows:
    """The rows with a label and without unexpected cells.

    Rows without a label are left out: nothing can be learned from them. DataError for the first
    unexpected cell, unless --bad-lines permits them.
    """
    bad = [each for each in unexpected if len(each.rows)]
    rows = np.unique(np.concatenate([each.rows for each in bad])) if bad else np.empty(0, np.int64)
    missing = np.setdiff1d(np.flatnonzero(np.isnan(labels.values)), rows)
    if len(rows) and not options.bad_lines:
        raise _unexpected_error(table, bad, len(rows), training=options.encoding is None)
    if not len(rows) and not len(missing):
        return UsableRows(None, NONE_SKIPPED, None)
    usable = np.setdiff1d(np.arange(table.rows), np.concatenate([rows, missing]))
    name = quoted(table.names[label])
    if not len(usable) and not len(rows):
        raise DataError(f"{table.source}: expected labels in column {name}; got none in any row")
    some = f"{len(missing):,} rows without a label" if len(missing) > 1 else "a row without a label"
    note = f"{some} (column {name}) {'are' if len(missing) > 1 else 'is'} left out"
    return UsableRows(usable, _skipped_rows(table, bad, rows), note if len(missing) else None)


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
    table: Table, bad: Sequence[UnexpectedCells], rows: int, *, training: bool
) -> DataError:
    """The error for the first unexpected cell; only in training may its column get another kind."""
    first = min(bad, key=lambda each: int(each.rows[0]))
    problem = f"{table.locate(int(first.rows[0]))}: {first.complaint}"
    fraction = np.ceil(1000 * rows / table.rows) / 1000
    some = f"all {rows:,} such rows" if rows > 1 else "the row"
    skip = f"leave {some} out with --bad-lines {fraction:g}"
    if not first.word or not training:
        return DataError(f"{problem}; correct the row, or {skip}")
    name = table.names[first.position]
    return MixedColumn(problem, f"if it is a category, use --categorical {name}, else {skip}")
