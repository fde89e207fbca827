"""Tables as CSV text."""

import io
import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv

from hogbatch.data.skipped import LineError, SkippedLines
from hogbatch.data.source import Source, too_long
from hogbatch.data.stored import CsvColumns
from hogbatch.data.table.arrow.columns import ADVICE, convert
from hogbatch.data.table.columns import MISSING, Kind
from hogbatch.data.table.dialect import Dialect, records, without_returns
from hogbatch.data.table.typed import TRUTHS
from hogbatch.data.table.written import columns_to_read_as_text
from hogbatch.data.text import blocks, changed_error, state_of
from hogbatch.errors import DataError
from hogbatch.machine import budget
from hogbatch.machine.printable import printable

BLOCK_BYTES: Final = 1 << 21  # of text that a thread parses at a time
STRADDLING: Final = "straddling"  # in the error of PyArrow for a line that is in three blocks
RELEASED_WITHIN_S: Final = 1.0
PARSED_BYTES: Final = 32  # of memory for each byte of text, with the blocks that wait to be parsed
MAX_DICTIONARY: Final = 1 << 20  # distinct values of a block that is stored as numbers
NULLS: Final = sorted({form(word) for word in MISSING for form in (str, str.upper, str.title)})
TEXT_TYPES: Final[dict[str, pa.DataType]] = {
    "category": pa.dictionary(pa.int32(), pa.string()),
    "text": pa.string(),
}


@dataclass(slots=True)
class Counts:
    """The part of a file that PyArrow has read."""

    lines: int = 0
    skipped: int = 0  # rows with a wrong number of cells


class LineStream(io.RawIOBase):
    """The text of a file from a line on, for PyArrow."""

    def __init__(self, source: Source, first_line: int, counts: Counts) -> None:
        self._source = source
        self._chunks = _from_line(source, first_line)
        self._chunk = memoryview(b"")
        self._counts = counts

    def readable(self) -> bool:
        """Whether the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read up to len(buffer) bytes."""
        if not self._chunk:
            text = next(self._chunks, b"")
            budget.require(PARSED_BYTES * len(text), f"the rows of {self._source}", ADVICE)
            self._counts.lines += text.count(b"\n")
            self._chunk = memoryview(text)
        size = min(len(buffer), len(self._chunk))
        buffer[:size] = self._chunk[:size]
        self._chunk = self._chunk[size:]
        return size

    def skip(self, _: object) -> str:
        """Count a row with a wrong number of cells."""
        self._counts.skipped += 1
        return "skip"


def _from_line(source: Source, first_line: int) -> Iterator[bytes]:
    for block in blocks(source):
        text = without_returns(block.text)
        for _ in range(block.first_line, first_line):
            text = text[text.find(b"\n") + 1 :]
        first_line = 0
        if not text.isascii():  # PyArrow reports bytes that are not UTF-8 only on stderr
            text = text.decode("utf-8", "backslashreplace").encode()
        if text:
            yield text


def read_csv(
    source: Source, dialect: Dialect, kinds: Mapping[int, Kind | None], *, skip: bool
) -> CsvColumns:
    """Read the columns in `kinds`, by position; None: the kind follows from the cells.

    DataError for the first line that does not have as many cells as the file has columns, unless
    `skip`, or if the file changes.
    """
    state = state_of(source)
    read = _read(source, dialect, kinds, skip=skip)
    found = [n for n in read.columns if kinds[n] is None]
    if again := columns_to_read_as_text({n: read.columns[n] for n in found}):
        texts = _read(source, dialect, dict.fromkeys(again, "category"), skip=skip)
        read = read._replace(columns={**read.columns, **texts.columns})
    if state_of(source) != state:
        raise changed_error(source)
    return read


def _read(
    source: Source, dialect: Dialect, kinds: Mapping[int, Kind | None], *, skip: bool
) -> CsvColumns:
    released, counts = threading.Event(), Counts()
    try:
        table = _parse(source, dialect, kinds, skip, counts, released)
    finally:
        # A thread of PyArrow may hold the stream for a moment longer. If it released the stream
        # while Python exits, the process would abort (github.com/apache/arrow/issues/34314).
        released.wait(RELEASED_WITHIN_S)
    if isinstance(table, str):
        raise _diagnosed(source, dialect, table)
    names = {str(n): dialect.names[n] for n in kinds}
    texts = {str(n) for n, kind in kinds.items() if kind == "text"}
    columns = convert(table, names, texts, source, decimal=dialect.decimal)
    found = {int(name): column for name, column in columns.items()}
    return CsvColumns(found, counts.lines, _skipped(source, dialect, counts.skipped))


def _parse(
    source: Source,
    dialect: Dialect,
    kinds: Mapping[int, Kind | None],
    skip: bool,
    counts: Counts,
    released: threading.Event,
) -> pa.Table | str:
    """The table, or what is wrong with it; `released` is set when PyArrow has released the stream.

    The problem is returned, because an exception would keep the stream alive through its traceback.
    """
    stream = LineStream(source, dialect.first_line, counts)
    weakref.finalize(stream, released.set).atexit = False
    try:
        return pyarrow.csv.read_csv(
            stream,
            read_options=pyarrow.csv.ReadOptions(
                column_names=[str(n) for n in range(len(dialect.names))],
                block_size=BLOCK_BYTES,
            ),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=dialect.delimiter,
                newlines_in_values=True,
                invalid_row_handler=stream.skip if skip else None,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                check_utf8=True,
                column_types={
                    str(n): TEXT_TYPES[kind] for n, kind in kinds.items() if kind in TEXT_TYPES
                },
                null_values=NULLS,
                true_values=[word for word, truth in TRUTHS.items() if truth],
                false_values=[word for word, truth in TRUTHS.items() if not truth],
                strings_can_be_null=False,
                auto_dict_encode=True,
                auto_dict_max_cardinality=MAX_DICTIONARY,
                include_columns=[str(n) for n in kinds],
                decimal_point=dialect.decimal,
            ),
        )
    except pa.ArrowInvalid as error:
        return str(error)


def _diagnosed(source: Source, dialect: Dialect, problem: str) -> DataError:
    """The error for the first line with a wrong number of cells, or that is too long."""
    line = None
    for line, cells in records(source, dialect):
        if len(cells) != len(dialect.names):
            return DataError(f"{source}:{line}: {_wrong_width(cells, dialect)}")
        if STRADDLING in problem and sum(map(len, cells)) > BLOCK_BYTES:
            return too_long(source, line, BLOCK_BYTES)
    if line is None:
        return DataError(f"{source} has a header and no rows")
    reason = printable(problem.splitlines()[0], 200)
    return DataError(f"{source}: the table cannot be read: {reason}")


def _wrong_width(cells: list[str], dialect: Dialect) -> str:
    return f"{len(cells)} columns; expected {len(dialect.names)} as in the first line"


def _skipped(source: Source, dialect: Dialect, count: int) -> SkippedLines:
    """The `count` lines with a wrong number of cells."""
    if not count:
        return SkippedLines()
    width = len(dialect.names)
    wrong = {line: cells for line, cells in records(source, dialect) if len(cells) != width}
    return SkippedLines.of(
        sorted(wrong), lambda line: LineError(None, _wrong_width(wrong[line], dialect))
    )
