"""CSV and TSV: one row a line, all cells numbers, one column the label.

A first line with text in it is a header. The label column is the last one unless `label` names it
or gives its number from 0. Cells may be quoted; every cell must be a finite number.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import dense_inputs
from hogbatch.data.raw import Options, RawSet
from hogbatch.data.skipped import Misplaced, Skipped
from hogbatch.data.source import Source
from hogbatch.data.text import Block, Counts, TextFile, number
from hogbatch.errors import DataError

SHOWN_NAMES = 20


class Table(NamedTuple):
    """What the first line of a file tells."""

    source: Source
    delimiter: str
    width: int  # columns, D
    names: tuple[str, ...]  # [D], or empty without a header
    line: int  # where it stands


class Rows(NamedTuple):
    """Some rows, or room for them."""

    lines: NDArray[np.int64]  # [N]
    dense: NDArray[np.float32]  # [N, F]
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
    column: int | None  # of the label

    def count(self, text: bytes) -> Counts:
        """Tell how many rows `text` holds at most."""
        return (text.count(b"\n"),)

    def byte_size(self, counts: Counts) -> int:
        """Bytes of the room for so many rows: float32 cells, an int64 line, a float64 label."""
        rows, labelled = counts[0], self.column is not None
        return rows * (4 * (self.table.width - labelled) + 8 + 8 * labelled)

    def reserve(self, counts: Counts) -> Rows:
        """Make room for so many rows."""
        rows, labelled = counts[0], self.column is not None
        return Rows(
            lines=np.empty(rows, np.int64),
            dense=np.empty((rows, self.table.width - labelled), np.float32),
            labels=np.empty(rows if labelled else 0, np.float64),
        )

    def parse(self, block: Block, room: Rows, begin: Counts, end: Counts) -> Part | None:
        """Read a block into its place; None when anything in it is unusual."""
        from hogbatch.data.parse import table as compiled

        place = _cut(room, begin[0], end[0])
        column = -1 if self.column is None else self.column
        text, delimiter = np.frombuffer(block.text, np.uint8), ord(self.table.delimiter)
        rows = compiled.rows(text, block.first_line, delimiter, column, place)
        return None if rows < 0 else Part(_cut(place, 0, rows))

    def parse_lines(self, block: Block) -> Part:
        """Read a block line by line, without lines that have a mistake; blank lines are no rows."""
        contents = block.text.split(b"\n")[:-1]
        lines, rows, mistaken = [], [], []
        for line, content in enumerate(contents, block.first_line):
            if content.strip(b"\r"):
                try:
                    rows.append(_row(content, self.table))
                except Misplaced:
                    mistaken.append(line)
                else:
                    lines.append(line)
        numbers = np.array(rows, np.float64).reshape(-1, self.table.width)
        features = numbers if self.column is None else np.delete(numbers, self.column, axis=1)
        labels = np.empty(0) if self.column is None else numbers[:, self.column].copy()
        return Part(
            Rows(np.array(lines, np.int64), features.astype(np.float32), labels),
            Skipped.of(
                mistaken, lambda line: _mistake(contents[line - block.first_line], self.table)
            ),
        )


def read(path: Source, options: Options) -> RawSet:
    """Read a CSV file into dense rows.

    A file with just as many columns as the model has inputs (`options.features`) has no labels,
    unless a column bears the name `options.label`.
    """
    file = TextFile(path, options)
    table, rest = _begin(path, file.first)
    column = _label_column(table, options)
    layout = Lines(table, column)
    parsed = file.parse(rest, layout)
    lines, dense, labels = join(parsed.parts, parsed.room, layout)
    if not len(lines):
        raise DataError(f"{path} has a header and no rows")
    return RawSet(
        inputs=dense_inputs(dense),
        features=dense.shape[1],
        labels=None if column is None else labels,
        label_lists=None,
        source=str(path),
        lines=lines,
        skipped=parsed.skipped,
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


def _begin(path: Source, block: Block) -> tuple[Table, Block]:
    """Learn the table's form from its first line; the block comes back without a header."""
    text = block.text.lstrip(b"\r\n")
    if not text.strip():
        raise DataError(f"{path} is empty: expected a line of comma-separated numbers")
    line = block.first_line + block.text[: len(block.text) - len(text)].count(b"\n")
    first, _, rest = text.partition(b"\n")
    content = first.decode("utf-8", "replace")
    tabs = ".tsv" in path.name.lower() or ("\t" in content and "," not in content)
    delimiter = "\t" if tabs else ","
    try:
        cells = _cells(content, delimiter)
    except csv.Error as error:
        raise DataError(f"{path}:{line}:1: {error}") from None
    if all(_numeric(cell) for cell in cells):
        return Table(path, delimiter, len(cells), (), line), Block(line, text)
    return Table(path, delimiter, len(cells), tuple(cells), line), Block(line + 1, rest)


def _numeric(cell: str) -> bool:
    """Whether a cell of the first line is data: a number, also a bad one, or nothing."""
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True


def _label_column(table: Table, options: Options) -> int | None:
    label = options.label
    if label is not None and label in table.names:
        column = table.names.index(label)
    elif options.features == table.width:
        return None
    elif label is None:
        column = table.width - 1
    elif label.isascii() and label.isdigit() and int(label) < table.width:
        column = int(label)
    else:
        raise DataError(f"{table.source} has no label column {label!r}: {_columns(table)}")
    if table.width < 2:
        raise DataError(
            f"{table.source}:{table.line}:1: expected features and a label, separated by commas or "
            "tabs; got one column"
        )
    return column


def _columns(table: Table) -> str:
    if not table.names:
        return f"its {table.width} columns have no names; give a number from 0 to {table.width - 1}"
    more = ", ..." if table.width > SHOWN_NAMES else ""
    return f"its {table.width} columns are {', '.join(table.names[:SHOWN_NAMES])}{more}"


def _row(line: bytes, table: Table) -> list[float]:
    """Read a line; Misplaced, at no place that counts, if anything is wrong with it."""
    return [number(cell) for cell in _split(_text(line), table)]


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


def _mistake(line: bytes, table: Table) -> Misplaced:
    """Tell what is wrong with a line, and where."""
    content = _text(line)
    try:
        cells = _split(content, table)
    except Misplaced as mistake:
        return mistake
    for column, cell in enumerate(cells):
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
