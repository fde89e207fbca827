"""Reading tables with PyArrow: CSV text, Parquet, Arrow and Feather files.

No other module imports PyArrow, which is an extra of this package.
"""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from hogbatch.data.header import MISSING
from hogbatch.data.signatures import PARQUET
from hogbatch.data.skipped import LineError, SkippedLines
from hogbatch.data.source import Source
from hogbatch.data.table.columns import (
    NO_VALUE,
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    TextColumn,
    as_text,
)
from hogbatch.data.table.dialect import DECIMAL_COMMA, Dialect, records
from hogbatch.data.table.kinds import Kind
from hogbatch.data.text import blocks
from hogbatch.errors import DataError
from hogbatch.machine.printable import printable, quoted

BLOCK_BYTES: Final = 1 << 21  # of text that a thread parses at a time
MAX_DICTIONARY: Final = 1 << 20  # distinct values of a block that is stored as numbers
POOL: Final = pa.system_memory_pool()  # malloc, which returns large arrays to Linux
NULLS: Final = sorted({form(word) for word in MISSING for form in (str, str.upper, str.title)})
TEXT_TYPES: Final[dict[str, pa.DataType]] = {
    "category": pa.dictionary(pa.int32(), pa.string()),
    "text": pa.string(),
}


class LineStream(io.RawIOBase):
    """The text of a file from a line on, for PyArrow; counts the lines."""

    def __init__(self, source: Source, first_line: int) -> None:
        self._chunks = _from_line(source, first_line)
        self._chunk = memoryview(b"")
        self.lines = 0

    def readable(self) -> bool:
        """Whether the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read up to len(buffer) bytes."""
        if not self._chunk:
            text = next(self._chunks, b"")
            self.lines += text.count(b"\n")
            self._chunk = memoryview(text)
        size = min(len(buffer), len(self._chunk))
        buffer[:size] = self._chunk[:size]
        self._chunk = self._chunk[size:]
        return size


def _from_line(source: Source, first_line: int) -> Iterator[bytes]:
    for block in blocks(source):
        text = block.text
        for _ in range(block.first_line, first_line):
            text = text[text.find(b"\n") + 1 :]
        first_line = 0
        if text:
            yield _utf8(text)


def _utf8(text: bytes) -> bytes:
    """The text with bytes that are not UTF-8 escaped; PyArrow reports them only on stderr."""
    if text.isascii():
        return text
    return text.decode("utf-8", "backslashreplace").encode()


def read_csv(
    source: Source, dialect: Dialect, kinds: Mapping[int, Kind | None], *, skip: bool
) -> tuple[dict[int, Column], int, SkippedLines]:
    """Read the columns in `kinds`, by position; None: the kind follows from the cells.

    Also returns the number of lines that were read, and the lines that do not have as many cells
    as the file has columns: DataError for the first, unless `skip`.
    """
    width, skipped = len(dialect.names), list[str]()

    def invalid(row: Any) -> str:
        skipped.append(row.text)
        return "skip"

    stream = LineStream(source, dialect.first_line)
    options = {
        "read_options": pyarrow.csv.ReadOptions(
            column_names=[str(n) for n in range(width)],
            block_size=BLOCK_BYTES,
        ),
        "parse_options": pyarrow.csv.ParseOptions(
            delimiter=dialect.delimiter,
            newlines_in_values=True,
            invalid_row_handler=invalid if skip else None,
        ),
        "convert_options": pyarrow.csv.ConvertOptions(
            check_utf8=True,
            column_types={
                str(n): TEXT_TYPES[kind] for n, kind in kinds.items() if kind in TEXT_TYPES
            },
            null_values=NULLS,
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
            strings_can_be_null=False,
            auto_dict_encode=True,
            auto_dict_max_cardinality=MAX_DICTIONARY,
            include_columns=[str(n) for n in kinds],
            decimal_point=dialect.decimal,
        ),
    }
    try:
        table = pyarrow.csv.read_csv(stream, **options, memory_pool=POOL)
    except pa.ArrowInvalid as error:
        raise _diagnosed(source, dialect, error) from None
    names = {str(n): dialect.names[n] for n in kinds}
    texts = {str(n) for n, kind in kinds.items() if kind == "text"}
    columns = _columns(table, names, texts, source, decimal=dialect.decimal)
    found = {int(name): column for name, column in columns.items()}
    return found, stream.lines, _skipped(source, dialect, len(skipped))


def _diagnosed(source: Source, dialect: Dialect, error: pa.ArrowInvalid) -> DataError:
    """The error for the first line with a wrong number of cells."""
    for line, cells in records(source, dialect):
        if len(cells) != len(dialect.names):
            return DataError(f"{source}:{line}: {_wrong_width(cells, dialect)}")
    reason = printable(str(error).splitlines()[0], 200)
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


def column_names(path: Path, source: str) -> tuple[str, ...]:
    """The names of the columns of a Parquet, Arrow or Feather file, or a folder of them."""
    with _intact(source):
        if path.is_dir():
            names = tuple(_dataset(path).schema.names)
        elif _is_parquet(path):
            names = tuple(pyarrow.parquet.ParquetFile(path).schema_arrow.names)
        else:
            names = tuple(pyarrow.ipc.open_file(path).schema.names)
    if len(set(names)) < len(names):
        twice = next(name for n, name in enumerate(names) if name in names[:n])
        raise DataError(f"{source}: expected distinct names; got two columns {quoted(twice)}")
    return names


def read_columnar(path: Path, source: str, kinds: Mapping[str, Kind | None]) -> dict[str, Column]:
    """Read the columns in `kinds` of a Parquet, Arrow or Feather file, or a folder of them.

    DataError if a file is damaged.
    """
    texts = {name for name, kind in kinds.items() if kind == "text"}
    with _intact(source):
        if path.is_dir():
            table = _dataset(path).to_table(columns=list(kinds), memory_pool=POOL)
        elif not _is_parquet(path):
            table = pyarrow.ipc.open_file(path).read_all().select(list(kinds))
        else:  # one column at a time needs the least memory
            file, found = pyarrow.parquet.ParquetFile(path), dict[str, Column]()
            for name in kinds:
                found |= _columns(file.read([name]), {name: name}, texts, source)
            return found
    return _columns(table, {name: name for name in kinds}, texts, source)


@contextmanager
def _intact(source: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = printable(str(error).splitlines()[0], 200)
        raise DataError(
            f"{source}: not an intact Parquet, Arrow or Feather file: {reason}"
        ) from None


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(PARQUET)) == PARQUET


def _dataset(path: Path) -> Any:
    """The files of a folder, whose format follows from the first bytes of the first file."""
    import pyarrow.dataset  # here: it imports pandas, which takes longer than reading most files

    files = [each for each in path.rglob("*") if each.is_file() and each.name[0] not in "._"]
    form = "parquet" if _is_parquet(min(files)) else "feather"
    return pyarrow.dataset.dataset(path, format=form, partitioning="hive")


def _columns(
    table: pa.Table,
    names: Mapping[str, str],
    texts: set[str],
    source: object,
    decimal: str = ".",
) -> dict[str, Column]:
    """Convert the columns `names` one after the other; each is freed before the next one."""
    arrays = dict(zip(table.column_names, table.columns, strict=True))
    del table
    found: dict[str, Column] = {}
    for name, shown in names.items():
        array = arrays.pop(name)
        try:
            found[name] = _texts(array) if name in texts else _column(array, decimal)
        except (pa.ArrowException, TypeError) as error:
            raise DataError(
                f"{source}: column {quoted(shown)}: expected numbers, text or dates; got "
                f"{array.type} ({printable(str(error), 80)}); leave it out with --drop"
            ) from None
        del array
    for pool in (POOL, pa.default_memory_pool()):  # the second is that of conversions
        pool.release_unused()
    return found


def _column(array: pa.ChunkedArray, decimal: str = ".") -> Column:
    kind, types = array.type, pa.types
    if types.is_null(kind):
        return NumberColumn(np.full(len(array), np.nan))
    if types.is_boolean(kind):
        return NumberColumn(_floats(array.cast(pa.uint8())), boolean=True)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return NumberColumn(_floats(array))
    if types.is_date(kind) or types.is_timestamp(kind):
        milliseconds = array.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        return DateColumn(_floats(milliseconds) / 1000)
    if types.is_time(kind):
        return DateColumn(_floats(array.cast(pa.time64("us")).cast(pa.int64())) / 1e6)
    if types.is_duration(kind):
        return NumberColumn(
            _floats(array.cast(pa.duration("us"), safe=False).cast(pa.int64())) / 1e6
        )
    return _categories(array, decimal)


def _floats(array: pa.ChunkedArray) -> Any:
    """Convert numbers to float64[N], with NaN for missing values."""
    return _values(array.cast(pa.float64(), safe=False), np.nan, np.float64)


def _values(array: pa.ChunkedArray, missing: float, dtype: Any) -> Any:
    """Copy numbers from the buffers of PyArrow, whose own conversions import pandas."""
    parts = [np.empty(0, dtype)]
    for chunk in array.chunks:
        rows = slice(chunk.offset, chunk.offset + len(chunk))
        validity, content = chunk.buffers()
        values = np.frombuffer(content or b"", dtype)[rows]
        if chunk.null_count:
            bits = np.frombuffer(validity, np.uint8)
            present = np.unpackbits(bits, count=rows.stop, bitorder="little")[rows]
            values = np.where(present, values, np.array(missing, dtype))
        parts.append(values)
    return np.concatenate(parts)


def _categories(array: pa.ChunkedArray, decimal: str) -> CategoryColumn:
    types = pa.types
    if not types.is_dictionary(array.type):
        if types.is_nested(array.type):
            raise TypeError("a column of lists")
        array = array.dictionary_encode()
    whole = array.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # of no rows
        return CategoryColumn(np.empty(0, np.int32), [])
    codes = _values(pa.chunked_array([whole.indices.cast(pa.int32())]), NO_VALUE, np.int32)
    values = [as_text(value) for value in whole.dictionary.to_pylist()]
    if decimal == ",":
        values = [v.replace(",", ".") if DECIMAL_COMMA.fullmatch(v) else v for v in values]
    return CategoryColumn.of(codes, values)


def _texts(array: pa.ChunkedArray) -> TextColumn:
    whole = pc.utf8_lower(array.cast(pa.large_string())).combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # of no rows
        return TextColumn(np.empty(0, np.uint8), np.zeros(1, np.int64))
    _, offsets, characters = whole.buffers()
    first = whole.offset
    indptr = np.frombuffer(offsets, np.int64)[first : first + len(whole) + 1]
    return TextColumn(np.frombuffer(characters or b"", np.uint8), indptr)
