"""Reading a table: a CSV file, a Parquet, Arrow or Feather file, or a folder of files.

A training table is inspected, and encoded after the split. A later table is encoded at once, with
the encoding of the training table. Without an encoding, a table of numbers is read as a matrix: for
models of arrays, and as a part of divided data.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from hogbatch.data.batch import DoubleInputs, dense_inputs
from hogbatch.data.cache import DataCache
from hogbatch.data.columns import (
    TableForm,
    find,
    find_labels,
    label_of_known,
    number_columns,
    one_column,
    position_note,
)
from hogbatch.data.pieces import PIECE_BYTES, text_pieces
from hogbatch.data.raw import Columns, RawSet, ReadOptions
from hogbatch.data.signatures import MAX_MAGIC_BYTES, is_columnar
from hogbatch.data.skipped import NONE_SKIPPED, SkippedLines
from hogbatch.data.source import Source, files_in
from hogbatch.data.stored import CsvColumns, csv_columns
from hogbatch.data.table.columns import Column, Kind, NumberColumn, Place, Table, joined
from hogbatch.data.table.dialect import Dialect, examine, lines_of
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.kinds import TableOptions, inspect, requested
from hogbatch.data.table.labels import rows_with_labels, table_labels
from hogbatch.data.table.rows import grouped_rows, usable_rows, weighted_rows
from hogbatch.data.table.typed import UnexpectedCells, typed
from hogbatch.data.table.written import COMMA, POINT
from hogbatch.errors import DataError
from hogbatch.machine.budget import require
from hogbatch.machine.printable import quoted


class TableFile(NamedTuple):
    """A file, or a folder of files, with the names of its columns."""

    source: Source
    texts: Sequence[tuple[Source, Dialect]]  # of CSV text; empty for other files
    form: TableForm
    parts: Sequence[Source] = ()  # of other files: pieces in place of the whole


def is_columnar_file(source: Source) -> bool:
    """Whether a path is a Parquet, Arrow or Feather file, or a folder."""
    if source.path.is_dir():
        return True
    with source.open() as file:
        return is_columnar(file.read(MAX_MAGIC_BYTES))


def read(source: Source, options: ReadOptions, cache: DataCache | None = None) -> RawSet:
    """Read a table for training (`options.table`), for a model, or as a matrix of numbers.

    DataError names file, line and column of the first cell or row that cannot be read. The columns
    of CSV files that were read before are taken from `cache`.
    """
    return read_file(open_table(source, options), options, cache)


def read_file(file: TableFile, options: ReadOptions, cache: DataCache | None = None) -> RawSet:
    """Read an open table, as `read` does."""
    if options.encoding is None and options.table is not None:
        return _for_training(file, options, options.table, cache)
    return _for_model(file, options, cache)


def pieces_of(
    source: Source, options: ReadOptions, piece_bytes: int | None = None
) -> Iterator[TableFile]:
    """Yield a table in pieces of about `piece_bytes`."""
    file = open_table(source, options)
    for text, dialect in file.texts:
        for piece in text_pieces(text, piece_bytes, dialect.delimiter):
            first_line = max(dialect.first_line, piece.first_line)
            own = dialect._replace(first_line=first_line, note=None)
            yield file._replace(texts=[(piece, own)])
    if not file.texts:
        from hogbatch.data.table.arrow.files import columnar_pieces  # here: PyArrow is large

        for piece in columnar_pieces(source, piece_bytes or PIECE_BYTES):
            yield file._replace(parts=[piece])


def together(pieces: Sequence[TableFile]) -> TableFile:
    """Several pieces of a table as one."""
    texts = [each for piece in pieces for each in piece.texts]
    return pieces[0]._replace(texts=texts, parts=[each for piece in pieces for each in piece.parts])


def open_table(source: Source, options: ReadOptions) -> TableFile:
    """Determine the kind of file and the names of its columns."""
    files = [source]
    if source.path.is_dir():
        files = [Source(each, progress=source.progress) for each in files_in(source.path)]
    if not files:
        raise DataError(f"{source}: expected a file, or a folder of table files; got no file in it")
    columnar = [is_columnar_file(each) for each in files]
    if all(columnar):
        from hogbatch.data.table.arrow.files import form_of_file  # here: PyArrow is large

        return TableFile(source, (), form_of_file(source.path, str(source)))
    if any(columnar):
        one, other = files[columnar.index(False)], files[columnar.index(True)]
        raise DataError(f"{source}: expected files of one format; got {one} and {other}")
    texts = [(each, examine(each, options)) for each in files]
    first = texts[0][1]
    for other, dialect in texts:
        if dialect.names != first.names:
            raise DataError(f"{other}: expected the columns of {files[0]} in the same order")
    return TableFile(source, texts, TableForm(str(source), first.names, first.named))


def _for_training(
    file: TableFile, options: ReadOptions, table_options: TableOptions, cache: DataCache | None
) -> RawSet:
    form, width = file.form, len(file.form.names)
    targets = find_labels(form, options.label) or (form.last,)
    if width < 2:
        raise one_column(file.source)
    table_options = replace(table_options, weight=options.weight, group=options.group)
    wanted = requested(form, table_options, targets)
    kinds = {
        n: kind if kind in ("category", "text") else None
        for n in range(width)
        if (kind := wanted.get(n)) != "drop"
    }
    if options.time is not None:
        kinds.setdefault(find(form, options.time, "time"), None)
    table, skipped = read_columns(file, kinds, options, cache)
    if not table.rows:
        _expect_rows(file, skipped, 0, options)
    table, weights = weighted_rows(table, options.weight)
    groups = grouped_rows(table, options.group, options.time)
    inspected = inspect(table, table_options, targets)
    if not inspected.kinds:
        raise DataError(f"{file.source}: no column can be used as a feature; {inspected.note}")
    labels = table_labels(inspected.table, targets)
    usable = usable_rows(table, inspected.unexpected, labels, options)
    kept = usable.kept
    read = {n: each.column for n, each in zip(targets, labels, strict=True)}
    columns = {**inspected.table.columns, **read}
    inspected = inspected._replace(table=replace(inspected.table, columns=columns, kept=kept))
    remarks = (note for each in labels for note in each.notes)
    notes = (*_notes(file), inspected.note, *usable.notes, *remarks)
    rows, first = inspected.table.rows, targets[0]
    of_rows = rows_with_labels(labels, inspected.table.numbers())
    skipped = _expect_rows(file, SkippedLines.of_parts([skipped, usable.skipped]), rows, options)
    return RawSet(
        inputs=dense_inputs(np.empty((rows, 0), np.float32)),
        features=0,
        source=str(file.source),
        skipped=skipped,
        columns=Columns((), form.names[first] if form.named else None, first),
        notes=notes,
        table=inspected,
        weights=None if weights is None else weights[inspected.table.numbers()],
        groups=None if groups is None else groups.of_rows(inspected.table.numbers()),
        locator=inspected.table.locator(),
        **of_rows._asdict(),
    )


def _expect_rows(
    file: TableFile, skipped: SkippedLines, rows: int, options: ReadOptions
) -> SkippedLines:
    """DataError if there are no rows, or more skipped lines than permitted."""
    if not rows and not skipped.total:
        raise DataError(f"{file.source} has no rows")
    skipped.check(file.source, rows, options.bad_lines)
    return skipped


def _for_model(file: TableFile, options: ReadOptions, cache: DataCache | None) -> RawSet:
    form, encoding = file.form, options.encoding
    kinds: dict[int, Kind | None]
    if encoding is None:
        matched = number_columns(form, options)
        note, columns = matched.note, matched.names(form)
        targets: tuple[int, ...] = () if matched.label is None else (matched.label,)
        kinds = dict.fromkeys(matched.features, "number")
    else:
        targets = _known_labels(form, options.label, encoding)
        first = targets[0] if targets else None
        columns = Columns((), None if first is None else form.names[first], first)
        note = position_note(encoding.named, form.named)
        kinds = {
            position: _cells(file, column.encoder.kind, column.form)
            for position, column in zip(encoding.match(form), encoding.columns, strict=True)
        }
    features = list(kinds)
    targets = targets if options.labels else ()
    kinds |= dict.fromkeys(targets)
    if encoding is not None:
        for n, known in zip(targets, encoding.labels, strict=False):
            kinds[n] = _cells(file, known.kind, known.form)
    uses = {"weight": options.weight, "group": options.group, "time": options.time}
    for use, name in uses.items():
        if name is not None:
            kinds.setdefault(find(form, name, use), None)
    table, skipped = read_columns(file, kinds, options, cache)
    table, weights = weighted_rows(table, options.weight)
    groups = grouped_rows(table, options.group, options.time)
    if encoding is None:
        adapted, unexpected = _numbers(table, features)
    else:
        adapted, unexpected = encoding.converted(table)
    labels = table_labels(table, targets, encoding)
    usable = usable_rows(table, unexpected, labels, options)
    table, adapted = (replace(each, kept=usable.kept) for each in (table, adapted))
    skipped = SkippedLines.of_parts([skipped, usable.skipped])
    skipped = _expect_rows(file, skipped, table.rows, options)
    of_rows = rows_with_labels(labels, table.numbers())
    return RawSet(
        inputs=_matrix(adapted) if encoding is None else encoding.transform(adapted),
        features=len(features) if encoding is None else encoding.features,
        source=str(file.source),
        skipped=skipped,
        columns=columns,
        notes=(*_notes(file), *filter(None, [note]), *usable.notes),
        weights=None if weights is None else weights[table.numbers()],
        groups=None if groups is None else groups.of_rows(table.numbers()),
        locator=table.locator(),
        **of_rows._asdict(),
    )


def _cells(file: TableFile, kind: Kind, form: str) -> Kind | None:
    """How the cells of a column are read: as text, if their decimal mark is not that of a file."""
    if kind != "number":
        return "text" if kind == "sequence" else kind
    others = {dialect.decimal for _, dialect in file.texts} - {form}
    return "category" if form and others else None


def _known_labels(
    form: TableForm, label: Sequence[str], encoding: TableEncoding
) -> tuple[int, ...]:
    """The positions of the label columns of a later table; () if it lacks any."""
    if label:
        return find_labels(form, label)
    first, *more = encoding.labels
    if not (encoding.named and form.named):
        whole = len(form.names) == encoding.width
        return tuple(each.position for each in encoding.labels) if whole else ()
    if more:
        targets = [each.name for each in encoding.labels]
        return find_labels(form, targets) if {*targets} <= {*form.names} else ()
    names = tuple(column.name for column in encoding.columns)
    found = label_of_known(form, (), Columns(names, first.name, first.position))
    return () if found is None else (found,)


def _numbers(table: Table, features: Sequence[int]) -> tuple[Table, tuple[UnexpectedCells, ...]]:
    """The `features` as numbers, numbered from 0, and the cells that are not numbers."""
    columns, unexpected = dict[int, Column](), list[UnexpectedCells]()
    for n, position in enumerate(features):
        columns[n], cells = typed(table, position, "number")
        missing = np.flatnonzero(columns[n].missing)
        if cells is not None:
            unexpected.append(cells)
            missing = np.setdiff1d(missing, cells.rows)
        if len(missing):
            name = quoted(table.names[position])
            complaint = f"column {name}: expected a number; got a missing value"
            unexpected.append(UnexpectedCells(missing, position, complaint))
    return replace(table, columns=columns), tuple(unexpected)


def _matrix(table: Table) -> DoubleInputs:
    """The columns of a table of numbers as a matrix float64[N, F]."""
    numbers = table.numbers()
    require(8 * len(numbers) * len(table.columns), f"the rows of {table.source}", "use fewer rows")
    dense = np.empty((len(numbers), len(table.columns)))
    for n, column in table.columns.items():
        assert isinstance(column, NumberColumn)
        dense[:, n] = column.values[numbers]
    return DoubleInputs(dense)


def _notes(file: TableFile) -> tuple[str, ...]:
    return tuple(dialect.note for _, dialect in file.texts[:1] if dialect.note)


def read_columns(
    file: TableFile,
    kinds: Mapping[int, Kind | None],
    options: ReadOptions,
    cache: DataCache | None = None,
) -> tuple[Table, SkippedLines]:
    """Read the columns in `kinds`, by position."""
    source, (_, names, named, indexes) = file.source, file.form
    if not file.texts:
        from hogbatch.data.table.arrow.files import read_columnar  # here: PyArrow is large

        source.begin_reading()
        wanted = {names[position]: kind for position, kind in kinds.items()}
        paths = [each.path for each in file.parts] or [source.path]
        found = [read_columnar(path, str(source), wanted) for path in paths]
        columns = {n: joined([each[names[n]] for each in found]) for n in kinds}
        return Table(str(source), names, columns, named, indexes=indexes), NONE_SKIPPED
    parts, files = list[CsvColumns](), list[CsvPart]()
    for own, dialect in file.texts:
        part = _read_csv(own, dialect, kinds, skip=options.bad_lines > 0, cache=cache)
        rows = len(next(iter(part.columns.values())))
        parts.append(part)
        files.append(CsvPart(own, dialect, rows, part.lines == rows))
    columns = {position: joined([part.columns[position] for part in parts]) for position in kinds}
    comma = COMMA if file.texts[0][1].delimiter == ";" else POINT
    table = Table(str(source), names, columns, named, partial(_places, files), comma=comma)
    return table, SkippedLines.of_parts(part.skipped for part in parts)


def _read_csv(
    source: Source,
    dialect: Dialect,
    kinds: Mapping[int, Kind | None],
    *,
    skip: bool,
    cache: DataCache | None,
) -> CsvColumns:
    def parse() -> CsvColumns:
        from hogbatch.data.table.arrow.text import read_csv  # here: PyArrow is large

        source.begin_reading()
        return read_csv(source, dialect, kinds, skip=skip)

    if cache is None or not source.persistent:
        return parse()
    key = {"dialect": dialect[:5], "kinds": list(kinds.items()), "skip": skip}
    return cache.read(source.path, key, parse, csv_columns(kinds))


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
            lines = lines_of(part.source, part.dialect, own)
        places += ((str(part.source), line) for line in lines)
        first += part.rows
    return places
