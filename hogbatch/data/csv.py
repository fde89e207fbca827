"""CSV and TSV files: one row per line, numbers in all cells, one label column.

Module `header` decides whether the first line is a header, and `columns` maps columns to features.
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
from hogbatch.data.columns import IGNORED, LABEL, TableForm, header_names, map_columns
from hogbatch.data.raw import RawSet, ReadOptions
from hogbatch.data.skipped import LineError, SkippedLines
from hogbatch.data.source import Source
from hogbatch.data.text import Counts, LineFormat, TextBlock, TextFile, number
from hogbatch.errors import DataError

SAMPLE_ROWS = 20  # maximum number of lines that the header detection reads
SAMPLE_BYTES = 1 << 20  # it reads no further lines after this many bytes


class TableRows(NamedTuple):
    """Rows of a table, or buffers for them."""

    lines: NDArray[np.int64]  # [N]
    dense: NDArray[np.float64]  # [N, F]
    labels: NDArray[np.float64]  # [N], or [0] without a label column


class TablePart(NamedTuple):
    """The rows parsed from a block of a file."""

    rows: TableRows
    skipped: SkippedLines = SkippedLines()

    @property
    def size(self) -> Counts:
        """The number of rows."""
        return (len(self.rows.lines),)


@dataclass(frozen=True, slots=True)
class TableFormat:
    """Parsing of table lines; implements `text.LineFormat`."""

    table: TableForm
    destinations: NDArray[np.int32]  # [D]: see `columns.ColumnMapping.destinations`

    def max_counts(self, text: bytes) -> Counts:
        """The maximum number of rows in `text`."""
        return (text.count(b"\n"),)

    def byte_size(self, counts: Counts) -> int:
        """Bytes of buffers for these counts: float64 cells and label, and an int64 line per row."""
        return 8 * counts[0] * (1 + int(np.count_nonzero(self.destinations != IGNORED)))

    def allocate(self, counts: Counts) -> TableRows:
        """Allocate buffers for these counts."""
        rows, labelled = counts[0], LABEL in self.destinations
        return TableRows(
            lines=np.empty(rows, np.int64),
            dense=np.empty((rows, np.count_nonzero(self.destinations >= 0)), np.float64),
            labels=np.empty(rows if labelled else 0, np.float64),
        )

    def parse(
        self, block: TextBlock, buffers: TableRows, begin: Counts, end: Counts
    ) -> TablePart | None:
        """Parse a block into its buffers; None if it contains an unusual line."""
        from hogbatch.data.parse import table as compiled

        target = _slice(buffers, begin[0], end[0])
        text, delimiter = np.frombuffer(block.text, np.uint8), ord(self.table.delimiter)
        rows = compiled.rows(text, block.first_line, delimiter, self.destinations, target)
        return None if rows < 0 else TablePart(_slice(target, 0, rows))

    def parse_lines(self, block: TextBlock) -> TablePart:
        """Parse a block line by line, skipping malformed and blank lines."""
        contents = block.text.split(b"\n")[:-1]
        lines, rows, malformed = [], [], []
        destinations = self.destinations.tolist()
        for line, content in enumerate(contents, block.first_line):
            if content.strip(b"\r"):
                try:
                    rows.append(_row(content, self.table, destinations))
                except LineError:
                    malformed.append(line)
                else:
                    lines.append(line)
        numbers = np.array(rows, np.float64).reshape(-1, self.table.width)
        sources = np.argsort(self.destinations)[np.count_nonzero(self.destinations < 0) :]
        features, labels = numbers[:, sources], numbers[:, self.destinations == LABEL].ravel()
        return TablePart(
            TableRows(np.array(lines, np.int64), features, labels),
            SkippedLines.of(
                malformed,
                lambda line: _diagnose(contents[line - block.first_line], self.table, destinations),
            ),
        )


def read(path: Source, options: ReadOptions) -> RawSet:
    """Read a CSV file into dense rows, with features in the order of `options.columns`.

    If one of the two tables has no names, a file with exactly as many columns as the model has
    inputs (`options.features`) has no labels.
    """
    file = TextFile(path, options)
    table, rest, note = _read_header(path, file, options)
    mapping = map_columns(table, options)
    line_format = TableFormat(table, mapping.destinations)
    parsed = file.parse(rest, line_format)
    lines, dense, labels = join(parsed.parts, parsed.buffers, line_format)
    if not len(lines):
        # Without a header, the first line would be a row.
        raise DataError(f"{path} has a header and no rows")
    return RawSet(
        inputs=double_inputs(dense),
        features=dense.shape[1],
        labels=None if mapping.label is None else labels,
        label_lists=None,
        source=str(path),
        lines=lines,
        skipped=parsed.skipped,
        columns=mapping.columns(table),
        notes=(*filter(None, (note,)), *mapping.notes),
    )


def _slice(buffers: TableRows, begin: int, end: int) -> TableRows:
    return TableRows(buffers.lines[begin:end], buffers.dense[begin:end], buffers.labels[begin:end])


def join(
    parts: Sequence[TablePart],
    buffers: TableRows | None,
    line_format: LineFormat[TablePart, TableRows],
) -> TableRows:
    """Concatenate the rows of all parts; rows that are already in place are not copied."""
    whole = buffers or line_format.allocate((sum(part.size[0] for part in parts),))
    end = 0
    for part in parts:
        begin, end = end, end + part.size[0]
        target = _slice(whole, begin, end)
        if not np.may_share_memory(target.lines[:1], part.rows.lines[:1]):
            target.lines[:] = part.rows.lines
            target.dense[:] = part.rows.dense
            target.labels[:] = part.rows.labels
    return _slice(whole, 0, end)


def _read_header(
    path: Source, file: TextFile, options: ReadOptions
) -> tuple[TableForm, TextBlock, str | None]:
    """Determine the table's structure from its first lines.

    Returns it with the first block without the header, and a note for the user, if any.
    """
    block = file.first
    text = block.text.lstrip(b"\r\n")
    if not text.strip():
        raise DataError(f"{path} is empty: expected a line of comma-separated numbers")
    line = block.first_line + block.text[: len(block.text) - len(text)].count(b"\n")
    first, _, rest = text.partition(b"\n")
    content = _decode(first)
    tabs = ".tsv" in path.name.lower() or ("\t" in content and "," not in content)
    delimiter = "\t" if tabs else ","
    try:
        cells = _cells(content, delimiter)
    except csv.Error as error:
        raise DataError(f"{path}:{line}:1: {error}") from None
    sample = _sample(file.peek(SAMPLE_ROWS), delimiter)[1:]
    decided = header.decide(cells, sample, options.header, _expected_names(options))
    if not decided.header:
        return TableForm(path, delimiter, len(cells), (), line), TextBlock(line, text), decided.note
    table = TableForm(path, delimiter, len(cells), header_names(cells), line, decided.numbered)
    return table, TextBlock(line + 1, rest), decided.note


def _expected_names(options: ReadOptions) -> Sequence[str]:
    """Names that a header of the file is expected to have."""
    if options.columns is not None and options.columns.names:
        return options.columns.names
    return () if options.label is None or options.label.isdigit() else (options.label,)


def _sample(text: bytes, delimiter: str) -> list[list[str]]:
    """The cells of the first lines of `text`, without lines that cannot be split."""
    rows, start = list[list[str]](), 0
    while start < len(text) and len(rows) < (SAMPLE_ROWS if start < SAMPLE_BYTES else 2):
        end = text.index(b"\n", start)
        content = _decode(text[start:end]).rstrip("\r")
        start = end + 1
        if content:
            with suppress(csv.Error):
                rows.append(_cells(content, delimiter))
    return rows


def _row(line: bytes, table: TableForm, destinations: Sequence[int]) -> list[float]:
    """Parse a line, with 0 in ignored columns; LineError, without a column, if it is malformed."""
    cells = _split(_decode(line), table)
    return [
        0.0 if destination == IGNORED else number(cell)
        for cell, destination in zip(cells, destinations, strict=True)
    ]


def _decode(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _split(content: str, table: TableForm) -> list[str]:
    """Split a line into one cell per column; LineError if the number of cells differs."""
    try:
        cells = _cells(content, table.delimiter)
    except csv.Error as error:
        raise LineError(0, str(error)) from None
    if len(cells) != table.width:
        more = len(cells) > table.width
        at = (
            _cell_start(content, table.delimiter, table.width)
            if more
            else len(content.rstrip("\r"))
        )
        raise LineError(at, f"{len(cells)} columns; expected {table.width} as in line {table.line}")
    return cells


def _diagnose(line: bytes, table: TableForm, destinations: Sequence[int]) -> LineError:
    """The error in a malformed line, with its column."""
    content = _decode(line)
    try:
        cells = _split(content, table)
    except LineError as error:
        return error
    for column, (cell, destination) in enumerate(zip(cells, destinations, strict=True)):
        if destination == IGNORED:
            continue
        try:
            number(cell)
        except LineError as error:
            name = f" ({table.names[column]})" if table.names else ""
            at = _cell_start(content, table.delimiter, column)
            return LineError(at, f"column {column}{name}: {error}")
    raise AssertionError("the line is not malformed")


def _cell_start(content: str, delimiter: str, column: int) -> int:
    """The position of a cell in a line, from 0; the end of the line if it has fewer cells."""
    cell = re.compile(rf' *"(?:[^"]|"")*"[^{delimiter}]*|[^{delimiter}]*')
    at = 0
    for _ in range(column):
        match = cell.match(content, at)
        at = match.end() + 1 if match else at
    return at + len(content[at:]) - len(content[at:].lstrip(" "))


def _cells(content: str, delimiter: str) -> list[str]:
    """Split a line into cells; only lines with quotes need the csv module."""
    if '"' not in content:
        return [cell.strip() for cell in content.split(delimiter)]
    reader = csv.reader([content], delimiter=delimiter, skipinitialspace=True)
    return [cell.strip() for cell in next(reader)]
