"""CSV and TSV: one row a line, all cells numbers, one column the label.

Whether the first line is a header is decided in `header`, and what each column is in `columns`.
Cells may be quoted; every cell of a column that is read must be a finite number.
"""

import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import header
from hogbatch.data.batch import double_inputs
from hogbatch.data.columns import IGNORED, LABEL, Table, assign
from hogbatch.data.raw import Options, RawSet
from hogbatch.data.skipped import Misplaced, Skipped
from hogbatch.data.source import Source
from hogbatch.data.text import Block, Counts, TextFile, number
from hogbatch.errors import DataError

SAMPLE_ROWS = 20  # first lines that are compared,
SAMPLE_BYTES = 1 << 20  # but no more of them after so many bytes


class Rows(NamedTuple):
    """Some rows, or room for them."""

    lines: NDArray[np.int64]  # [N]
    dense: NDArray[np.float64]  # [N, F]
    labels: NDArray[np.float64]  # [N], or [0] without a label column


class Part(NamedTuple):
    """Some rows of a file."""

    rows: Rows
    skipped: Skipped = Skipped()

    @property
    def size(self) -> Counts:
        """How many rows there are."""
        return (len(self.rows.lines),)


@dataclass(frozen=True, slots=True)
class Lines:
    """How lines are read: see `text.Format`, which this is."""

    table: Table
    places: NDArray[np.int32]  # [D]: see `columns.Assignment`

    def count(self, text: bytes) -> Counts:
        """Tell how many rows `text` holds at most."""
        return (text.count(b"\n"),)

    def byte_size(self, counts: Counts) -> int:
        """Bytes of the room for so many rows: float64 cells and label, and an int64 line."""
        return 8 * counts[0] * (1 + int(np.count_nonzero(self.places != IGNORED)))

    def reserve(self, counts: Counts) -> Rows:
        """Make room for so many rows."""
        rows, labelled = counts[0], LABEL in self.places
        return Rows(
            lines=np.empty(rows, np.int64),
            dense=np.empty((rows, np.count_nonzero(self.places >= 0)), np.float64),
            labels=np.empty(rows if labelled else 0, np.float64),
        )

    def parse(self, block: Block, room: Rows, begin: Counts, end: Counts) -> Part | None:
        """Read a block into its place; None when anything in it is unusual."""
        from hogbatch.data.parse import table as compiled

        place = _cut(room, begin[0], end[0])
        text, delimiter = np.frombuffer(block.text, np.uint8), ord(self.table.delimiter)
        rows = compiled.rows(text, block.first_line, delimiter, self.places, place)
        return None if rows < 0 else Part(_cut(place, 0, rows))

    def parse_lines(self, block: Block) -> Part:
        """Read a block line by line, without lines that have a mistake; blank lines are no rows."""
        contents = block.text.split(b"\n")[:-1]
        lines, rows, mistaken = [], [], []
        places = self.places.tolist()
        for line, content in enumerate(contents, block.first_line):
            if content.strip(b"\r"):
                try:
                    rows.append(_row(content, self.table, places))
                except Misplaced:
                    mistaken.append(line)
                else:
                    lines.append(line)
        numbers = np.array(rows, np.float64).reshape(-1, self.table.width)
        sources = np.argsort(self.places)[np.count_nonzero(self.places < 0) :]
        features, labels = numbers[:, sources], numbers[:, self.places == LABEL].ravel()
        return Part(
            Rows(np.array(lines, np.int64), features, labels),
            Skipped.of(
                mistaken,
                lambda line: _mistake(contents[line - block.first_line], self.table, places),
            ),
        )


def read(path: Source, options: Options) -> RawSet:
    """Read a CSV file into dense rows, whose features are in the order of `options.columns`.

    Without names on both sides, a file with just as many columns as the model has inputs
    (`options.features`) has no labels.
    """
    file = TextFile(path, options)
    table, rest, note = _begin(path, file, options)
    assigned = assign(table, options)
    layout = Lines(table, assigned.places)
    parsed = file.parse(rest, layout)
    lines, dense, labels = join(parsed.parts, parsed.room, layout)
    if not len(lines):
        raise DataError(f"{path} has a header and no rows")  # any other first line is a row
    return RawSet(
        inputs=double_inputs(dense),
        features=dense.shape[1],
        labels=None if assigned.label is None else labels,
        label_lists=None,
        source=str(path),
        lines=lines,
        skipped=parsed.skipped,
        columns=assigned.columns(table),
        notes=(*filter(None, (note,)), *assigned.notes),
    )


def _cut(room: Rows, begin: int, end: int) -> Rows:
    return Rows(room.lines[begin:end], room.dense[begin:end], room.labels[begin:end])


def join(parts: Sequence[Part], room: Rows | None, layout: Lines) -> Rows:
    """Put the rows of all parts one after another; what lies there already is not copied."""
    whole = room or layout.reserve((sum(part.size[0] for part in parts),))
    end = 0
    for part in parts:
        begin, end = end, end + part.size[0]
        place = _cut(whole, begin, end)
        if not np.may_share_memory(place.lines[:1], part.rows.lines[:1]):
            place.lines[:] = part.rows.lines
            place.dense[:] = part.rows.dense
            place.labels[:] = part.rows.labels
    return _cut(whole, 0, end)


def _begin(path: Source, file: TextFile, options: Options) -> tuple[Table, Block, str]:
    """Learn the table's form from its first lines.

    Returns the first block without a header, and what to tell the user of that.
    """
    block = file.first
    text = block.text.lstrip(b"\r\n")
    if not text.strip():
        raise DataError(f"{path} is empty: expected a line of comma-separated numbers")
    line = block.first_line + block.text[: len(block.text) - len(text)].count(b"\n")
    first, _, rest = text.partition(b"\n")
    content = _text(first)
    tabs = ".tsv" in path.name.lower() or ("\t" in content and "," not in content)
    delimiter = "\t" if tabs else ","
    try:
        cells = _cells(content, delimiter)
    except csv.Error as error:
        raise DataError(f"{path}:{line}:1: {error}") from None
    sample = _sample(file.ahead(SAMPLE_ROWS), delimiter)[1:]
    decided = header.decide(cells, sample, options.header, _expected_names(options))
    if not decided.header:
        return Table(path, delimiter, len(cells), (), line), Block(line, text), decided.note
    table = Table(path, delimiter, len(cells), tuple(cells), line, decided.numbered)
    return table, Block(line + 1, rest), decided.note


def _expected_names(options: Options) -> Sequence[str]:
    """Names that a header of the file would have."""
    if options.columns is not None and options.columns.names:
        return options.columns.names
    return () if options.label is None or options.label.isdigit() else (options.label,)


def _sample(text: bytes, delimiter: str) -> list[list[str]]:
    """The cells of the first lines of `text` that can be split."""
    rows, start = list[list[str]](), 0
    while start < len(text) and len(rows) < (SAMPLE_ROWS if start < SAMPLE_BYTES else 2):
        end = text.index(b"\n", start)
        content = _text(text[start:end]).rstrip("\r")
        start = end + 1
        if content:
            with suppress(csv.Error):
                rows.append(_cells(content, delimiter))
    return rows


def _row(line: bytes, table: Table, places: Sequence[int]) -> list[float]:
    """Read a line, with 0 in ignored columns; Misplaced, at no place that counts, if it is bad."""
    cells = _split(_text(line), table)
    return [
        0.0 if place == IGNORED else number(cell) for cell, place in zip(cells, places, strict=True)
    ]


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _split(content: str, table: Table) -> list[str]:
    """Split a line into as many cells as there are columns; Misplaced if there are not so many."""
    try:
        cells = _cells(content, table.delimiter)
    except csv.Error as error:
        raise Misplaced(0, str(error)) from None
    if len(cells) != table.width:
        more = len(cells) > table.width
        at = _start(content, table.delimiter, table.width) if more else len(content.rstrip("\r"))
        raise Misplaced(at, f"{len(cells)} columns; expected {table.width} as in line {table.line}")
    return cells


def _mistake(line: bytes, table: Table, places: Sequence[int]) -> Misplaced:
    """Tell what is wrong with a line, and where."""
    content = _text(line)
    try:
        cells = _split(content, table)
    except Misplaced as mistake:
        return mistake
    for column, (cell, place) in enumerate(zip(cells, places, strict=True)):
        if place == IGNORED:
            continue
        try:
            number(cell)
        except Misplaced as mistake:
            name = f" ({table.names[column]})" if table.names else ""
            at = _start(content, table.delimiter, column)
            return Misplaced(at, f"column {column}{name}: {mistake}")
    raise AssertionError("nothing is wrong with the line")


def _start(content: str, delimiter: str, column: int) -> int:
    """Where a cell starts in a line, from 0; at the end if there are not so many."""
    cell = re.compile(rf' *"(?:[^"]|"")*"[^{delimiter}]*|[^{delimiter}]*')
    at = 0
    for _ in range(column):
        match = cell.match(content, at)
        at = match.end() + 1 if match else at
    return at + len(content[at:]) - len(content[at:].lstrip(" "))


def _cells(content: str, delimiter: str) -> list[str]:
    """Split a line; only one with quotes needs the care of the standard library."""
    if '"' not in content:
        return [cell.strip() for cell in content.split(delimiter)]
    reader = csv.reader([content], delimiter=delimiter, skipinitialspace=True)
    return [cell.strip() for cell in next(reader)]
