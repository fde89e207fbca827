"""The form of a CSV file, from its first rows: delimiter, decimal mark, header, names."""

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from hogbatch.data import header
from hogbatch.data.columns import header_names
from hogbatch.data.raw import ReadOptions
from hogbatch.data.source import Source
from hogbatch.data.table.columns import number_of
from hogbatch.data.text import TextFile, blocks, changed_error
from hogbatch.errors import DataError

SAMPLE_LINES: Final = 500
DELIMITERS: Final = (",", "\t", ";", "|")
DECIMAL_COMMA: Final = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")
DECIMAL_POINT: Final = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?")
LIST_COMMA: Final = re.compile(r"(?<!\d),|,(?!\d)")  # a comma that is not within a number


class Dialect(NamedTuple):
    """The form of a CSV file."""

    delimiter: str
    decimal: str  # "." or ","
    names: tuple[str, ...]  # [D]; numbers from 0 without a header
    named: bool  # whether the first line contains names
    first_line: int  # of the first row, from 1
    numeric: bool  # whether the first rows have only numbers, as the compiled reader expects
    note: str | None  # about the header


def examine(source: Source, options: ReadOptions) -> Dialect:
    """Determine the form of a file; DataError if it is empty, or not text."""
    text = TextFile(source, options).peek(SAMPLE_LINES).decode("utf-8", "replace")
    lines = text.split("\n")[: SAMPLE_LINES + 1]
    delimiter = "\t" if ".tsv" in source.name.lower() else _delimiter(lines)
    records = list(_records(lines, delimiter))
    if not records:
        raise DataError(f"{source} is empty: expected a line of comma-separated cells")
    (_, end, first), below = records[0], [cells for _, _, cells in records[1:]]
    decided = _decide_header(first, below, options)
    rows = below if decided.header else [first, *below]
    names = header_names(first) if decided.header else tuple(map(str, range(len(first))))
    marks = [cell for row in rows for cell in row if "," in cell or "." in cell]
    comma = delimiter == ";" and _has_decimal_commas(marks)
    return Dialect(
        delimiter,
        "," if comma else ".",
        names,
        decided.header and not decided.numbered,
        end + 1 if decided.header else records[0][0],
        delimiter in ",\t" and all(number_of(cell) is not None for row in rows for cell in row),
        decided.note,
    )


def _has_decimal_commas(cells: Sequence[str]) -> bool:
    some = any(DECIMAL_COMMA.fullmatch(cell) for cell in cells)
    return some and not any(DECIMAL_POINT.fullmatch(cell) for cell in cells)


def _delimiter(lines: Sequence[str]) -> str:
    """The delimiter that divides all lines into equally many cells, and into the most."""
    widths = {}
    for delimiter in DELIMITERS:
        found = {len(cells) for _, _, cells in _records(lines, delimiter)}
        if len(found) == 1 and (width := found.pop()) > 1:
            widths[delimiter] = width
    if ";" in widths and not any(map(LIST_COMMA.search, lines[1:])):
        return ";"
    if widths:
        return max(widths, key=lambda delimiter: widths[delimiter])
    counts = {delimiter: lines[0].count(delimiter) for delimiter in DELIMITERS}
    return max(counts, key=lambda delimiter: counts[delimiter])


def _records(lines: Sequence[str], delimiter: str) -> Iterator[tuple[int, int, list[str]]]:
    """First line, last line and cells of each record that is not blank; not of damaged ones."""
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, skipinitialspace=True)
    end = 0
    with suppress(csv.Error):
        for cells in reader:
            start, end = end + 1, reader.line_num
            if any(cells):
                yield start, end, [cell.strip() for cell in cells]


def _decide_header(
    first: Sequence[str], below: Sequence[Sequence[str]], options: ReadOptions
) -> header.HeaderDecision:
    """Decide whether the first line has names; columns of text need not have numbers below."""
    expected = {name for name in _named(options) if not name.isdigit()}
    decided = header.decide(first, below, options.header, expected)
    if decided.header or options.header != "auto":
        return decided
    indexed = not first[0] and all(row[0] for row in below)  # the index of a frame has no name
    names = first[1:] if indexed else first
    texts = all(cell and number_of(cell) is None for cell in names)
    again = any(
        len(row) == len(first) and any(map(str.__eq__, first, row)) for row in below
    )  # a value of the first line occurs below
    if not texts or not names or len(set(names)) < len(names) or again or not below:
        return decided
    return header.HeaderDecision(
        True,
        note="the first line is treated as a header; if it is a row of data, use --header no",
    )


def _named(options: ReadOptions) -> set[str]:
    """The names of columns that the user or the model knows."""
    names = set() if options.label is None else {options.label}
    if options.encoding is not None:
        names |= {column.name for column in options.encoding.columns}
    if options.table is not None:
        table = options.table
        names |= {*table.drop, *table.categorical, *table.numeric, *table.text}
    return names


def records(source: Source, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """First line and cells of each record after the header; slow, for messages about errors."""

    def lines() -> Iterator[str]:
        for block in blocks(source):
            text = block.text.decode("utf-8", "replace")
            for number, line in enumerate(text.split("\n")[:-1], block.first_line):
                if number >= dialect.first_line:
                    yield f"{line}\n"

    reader = csv.reader(lines(), delimiter=dialect.delimiter)
    end = dialect.first_line - 1
    try:
        for cells in reader:
            start, end = end + 1, dialect.first_line - 1 + reader.line_num
            if cells and (len(cells) > 1 or cells[0].strip() or len(dialect.names) == 1):
                yield start, cells
    except csv.Error as error:
        raise DataError(f"{source}:{end + 1}: {error}") from None


def lines_of(source: Source, dialect: Dialect, rows: Sequence[int]) -> Iterator[int]:
    """The lines of ascending rows, from 1; rows with a wrong number of cells are not counted."""
    width, wanted = len(dialect.names), iter(rows)
    lines = (line for line, cells in records(source, dialect) if len(cells) == width)
    next_row = next(wanted, None)
    for row, line in enumerate(lines):
        if next_row is None:
            return
        if row == next_row:
            yield line
            next_row = next(wanted, None)
    if next_row is not None:
        raise changed_error(source)
