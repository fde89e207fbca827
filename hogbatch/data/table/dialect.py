"""The form of a CSV file, from its first rows: delimiter, decimal mark, header, names."""

import csv
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from hogbatch.data.columns import numbered
from hogbatch.data.raw import ReadOptions
from hogbatch.data.source import MAX_LINE_BYTES, Source
from hogbatch.data.table.columns import MISSING
from hogbatch.data.table.written import DECIMALS, number_in
from hogbatch.data.text import blocks, changed_error
from hogbatch.errors import DataError
from hogbatch.machine.printable import quoted

SAMPLE_LINES: Final = 500
SAMPLE_BYTES: Final = 1 << 17  # read at a time until there are SAMPLE_LINES lines
DELIMITERS: Final = (",", "\t", ";", "|")
DECIMAL_COMMA: Final = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")
DECIMAL_POINT: Final = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?")
LONE_RETURN: Final = re.compile(rb"\r(?!\n)")
LIST_COMMA: Final = re.compile(r"(?<!\d),|,(?!\d)")  # a comma that is not within a number

# The default is 128 KiB, but a cell may be as long as a line.
csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE_BYTES))


class Dialect(NamedTuple):
    """The form of a CSV file."""

    delimiter: str
    decimal: str  # "." or ","
    names: tuple[str, ...]  # [D]; numbers from 0 without a header
    named: bool  # whether the first line contains names
    first_line: int  # of the first row, from 1
    note: str | None  # about the header


class Header(NamedTuple):
    """Whether the first line is a header."""

    header: bool
    numbered: bool = False  # a header of column numbers
    note: str | None = None  # for the user if the decision is not obvious


def examine(source: Source, options: ReadOptions) -> Dialect:
    """Determine the form of a file; DataError if it is empty, or not text."""
    lines = _first_lines(source)
    delimiter = "\t" if ".tsv" in source.name.lower() else _delimiter(lines)
    records = list(_records(lines, delimiter))
    if not records:
        raise DataError(f"{source} is empty: expected a line of comma-separated cells")
    (_, end, first), below = records[0], [cells for _, _, cells in records[1:]]
    decided = decide_header(first, below, options.header, _known_names(options))
    rows = below if decided.header else [first, *below]
    names = tuple(map(str, range(len(first))))
    if decided.header:  # columns without a name have the name that pandas gives
        names = tuple(cell or f"Unnamed: {column}" for column, cell in enumerate(first))
    marks = [cell for row in rows for cell in row if "," in cell or "." in cell]
    commas, points = (any(map(each.fullmatch, marks)) for each in (DECIMAL_COMMA, DECIMAL_POINT))
    return Dialect(
        delimiter,
        "," if delimiter == ";" and commas and not points else ".",
        names,
        decided.header and not decided.numbered,
        end + 1 if decided.header else records[0][0],
        decided.note,
    )


def _first_lines(source: Source) -> list[str]:
    """The first lines of a file, without line ends."""
    parts, lines = list[bytes](), 0
    for block in blocks(source, SAMPLE_BYTES):
        parts.append(without_returns(block.text))
        lines += block.text.count(b"\n")
        if lines >= SAMPLE_LINES:
            break
    return b"".join(parts).decode("utf-8", "replace").split("\n")[: SAMPLE_LINES + 1]


def without_returns(text: bytes) -> bytes:
    """Replace carriage returns that are not part of a line end by blanks.

    Parsers of CSV take them for line ends.
    """
    return LONE_RETURN.sub(b" ", text) if b"\r" in text else text


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


def _known_names(options: ReadOptions) -> set[str]:
    """The names of columns that the user or the model knows."""
    names = set(options.label)
    if options.columns is not None:
        names |= set(options.columns.names)
    if options.encoding is not None:
        names |= {column.name for column in options.encoding.columns}
    if options.table is not None:
        table = options.table
        names |= {*table.drop, *table.categorical, *table.numeric, *table.text}
    return {name for name in names if not name.isdigit()}


def decide_header(
    first: Sequence[str], below: Sequence[Sequence[str]], setting: str, expected: Collection[str]
) -> Header:
    """Decide whether the line `first` is a header; `below` are some of the rows after it.

    `setting` is auto, yes or no, and `expected` are names that a header would have. A column
    with text in the first line and mostly numbers below has a name. Words for missing values are
    ignored, and numbers are a header only if they are the column numbers.
    """
    if setting != "auto":
        return Header(setting == "yes", setting == "yes" and numbered(first))
    if numbered(first) and below:
        what = f"treated as a header of column numbers (0 to {first[-1]})"
        return Header(True, True, _header_note(what))
    texts = [column for column, cell in enumerate(first) if _is_text(cell)]
    if texts and expected and set(expected) <= set(first):
        return Header(True)
    rows = [row for row in below if len(row) == len(first)]
    some_numbers = any(map(_is_number, first))
    for column in texts:
        cells = [row[column] for row in rows]
        if sum(map(_is_number, cells)) > sum(map(_is_text, cells)):
            what = f"column {column} has {quoted(first[column])} there and numbers below"
            what = f"treated as a header because {what}, although other columns have numbers in"
            return Header(True, note=_header_note(f"{what} both") if some_numbers else None)
    words = any(_is_text(row[column]) for row in rows for column in texts)
    if texts and not words and not some_numbers:
        return Header(True)
    names = first[1:] if not first[0] and all(row[0] for row in below) else first
    distinct = len(names) == len(set(names)) > 0
    distinct = distinct and all(cell and not _is_number(cell) for cell in names)
    again = any(any(map(str.__eq__, first, row)) for row in rows)  # a value of the first line
    if below and distinct and not again:
        return Header(True, note=_header_note("treated as a header"))
    return Header(False)


def _header_note(what: str) -> str:
    return f"the first line is {what}; if it is a row of data, use --header no"


def _is_number(cell: str) -> bool:
    """Whether a cell is a number, including invalid numbers such as inf."""
    if cell.lower() in MISSING:
        return False
    try:
        float(cell)
    except ValueError:
        return any(number_in(cell, mark) is not None for mark in DECIMALS)
    return True


def _is_text(cell: str) -> bool:
    return cell.lower() not in MISSING and not _is_number(cell)


def records(source: Source, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """First line and cells of each record after the header; slow, for messages about errors."""

    def lines() -> Iterator[str]:
        for block in blocks(source):
            text = without_returns(block.text).decode("utf-8", "replace")
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


def lines_of(source: Source, dialect: Dialect, rows: Sequence[int]) -> list[int]:
    """The lines of ascending rows, from 1; rows with a wrong number of cells are not counted."""
    width, wanted = len(dialect.names), {*rows}
    lines = (line for line, cells in records(source, dialect) if len(cells) == width)
    read = enumerate(islice(lines, max(rows, default=-1) + 1))
    found = [line for row, line in read if row in wanted]
    if len(found) < len(wanted):
        raise changed_error(source)
    return found
