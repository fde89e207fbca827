"""Selection of the reader for a file by its name or content."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import Final

from hogbatch.data import arrays, csv, libsvm, xmc
from hogbatch.data.cache import DataCache
from hogbatch.data.header import SETTINGS
from hogbatch.data.raw import Columns, RawSet, ReadOptions
from hogbatch.data.signatures import FIRST_BYTES, MAX_MAGIC_BYTES, is_archive
from hogbatch.data.source import Source, opened
from hogbatch.data.table import numbers, read as tables
from hogbatch.data.text import blocks
from hogbatch.errors import DataError, UsageError

Reader = Callable[[Source, ReadOptions], RawSet]

READERS: Final[dict[str, Reader]] = {
    ".svm": libsvm.read,
    ".libsvm": libsvm.read,
    ".svmlight": libsvm.read,
    ".xmc": xmc.read,
    ".csv": csv.read,
    ".tsv": csv.read,
    ".npz": arrays.read,
}

# Options that affect the result of parsing a text file; they are part of the cache key.
RELEVANT_OPTIONS: Final[dict[Reader, tuple[str, ...]]] = {
    libsvm.read: ("index_base", "declared"),
    xmc.read: (),
    csv.read: ("label", "features", "header", "columns"),
}

# Tried in this order on the first lines of a file whose name does not determine the format.
CONTENT_PATTERNS: Final[tuple[tuple[re.Pattern[bytes], Reader], ...]] = (
    (re.compile(rb"\A\d+[ \t]+\d+[ \t]+\d+[ \t\r]*\n"), xmc.read),
    (re.compile(rb"(?m)(?:^|\s)\d+:[-+.\d]"), libsvm.read),
    (re.compile(rb"\A[^\n]*[,\t;|]"), csv.read),
)
COMPRESSED_SUFFIXES: Final = (".gz", ".bz2", ".xz")


def read_as(path: str | Path, options: ReadOptions, cache: DataCache | None = None) -> RawSet:
    """Read a data file; the format is determined from its name, or else from its first lines.

    "-" is standard input. Compression is detected from the first bytes. Text files that were read
    before are taken from `cache`.
    """
    if options.index_base not in (None, 0, 1):
        raise UsageError(f"index base must be 0 or 1; got {options.index_base!r}")
    if not 0 <= options.bad_lines <= 1:
        raise UsageError(f"bad lines must be a fraction from 0 to 1; got {options.bad_lines!r}")
    if options.header not in SETTINGS:
        raise UsageError(f"header must be one of {', '.join(SETTINGS)}; got {options.header!r}")
    with opened(path, options.progress) as source:
        try:
            return _read(source, options, cache if source.persistent else None)
        except MemoryError as error:
            raise UsageError(
                f"{source}: not enough memory to read it: {error or 'out of memory'}; use "
                "fewer rows, or a machine with more memory"
            ) from None
        finally:
            source.progress.end()


def is_csv_with_text(path: str | Path, options: ReadOptions) -> bool:
    """Whether the first rows of a CSV file have other cells than numbers, or other delimiters."""
    with opened(path) as source:
        if tables.is_columnar_file(source) or _reader(source) is not csv.read:
            return False
        return not tables.is_plain(source, options)


def _read(source: Source, options: ReadOptions, cache: DataCache | None) -> RawSet:
    """Read a table, or a file of numbers, whichever it is."""
    if options.encoding is not None:
        if not tables.is_columnar_file(source) and (reader := _reader(source)) is not csv.read:
            raise _not_a_table(source, "the model was trained on a table")
        return tables.read(source, options)
    if tables.is_columnar_file(source):
        read_columns = numbers.read if options.table is None else tables.read
        return read_columns(source, options)
    if options.table is None:
        return _read_numbers(_reader(source), source, options, cache)
    reader, table_options = _reader(source), options.table
    if reader is not csv.read:
        if table_options.given:
            raise _not_a_table(source, "--drop, --categorical, --numeric and --text name columns")
        return _read_numbers(reader, source, options, cache)
    if (
        table_options.given
        or table_options.scale == "quantile"
        or not tables.is_plain(source, options)
    ):
        return tables.read(source, options)
    try:
        return _read_numbers(reader, source, options, cache)
    except DataError as error:
        return _read_after(error, source, options)


def _not_a_table(source: Source, why: str) -> DataError:
    return DataError(
        f"{source}: {why}; expected a CSV, Parquet, Arrow or Feather file with these columns"
    )


def _read_after(error: DataError, source: Source, options: ReadOptions) -> RawSet:
    """Read a file as a table if only that is possible: it has text or missing values further down.

    Raises the first `error`, with its line and column, if that fails, too.
    """
    try:
        return tables.read(source, options)
    except tables.MixedColumn as mixed:
        raise DataError(f"{error}; {mixed.advice}") from None
    except DataError:
        raise error from None


def _read_numbers(
    reader: Reader, source: Source, options: ReadOptions, cache: DataCache | None
) -> RawSet:

    def parse() -> RawSet:
        source.begin_reading()
        return reader(source, options)

    if cache is None or reader not in RELEVANT_OPTIONS:
        return parse()
    relevant = {name: _key(getattr(options, name)) for name in RELEVANT_OPTIONS[reader]}
    raw = cache.read(source.path, relevant, parse)
    raw.skipped.check(
        source, raw.rows, options.bad_lines
    )  # the entry may be from a run with other --bad-lines
    return replace(raw, source=str(source))


def _key(value: str | int | Columns | None) -> str | int | None:
    """The value of an option in a cache key; columns are hashed: there may be many names."""
    if isinstance(value, Columns):
        return blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()
    return value


def _reader(source: Source) -> Reader:
    """The reader for a file: .npz is detected by its first bytes, text by name or content."""
    with source.open() as file:
        if is_archive(file.read(MAX_MAGIC_BYTES)):
            return arrays.read
    plain = PurePath(source.name)
    while plain.suffix.lower() in COMPRESSED_SUFFIXES:
        plain = plain.with_suffix("")
    return READERS.get(plain.suffix.lower()) or _detect(source)


def _detect(source: Source) -> Reader:
    first = next(blocks(source), None)
    if first is None:
        raise DataError(f"{source} is empty; expected rows of numbers")
    for pattern, reader in CONTENT_PATTERNS:
        if pattern.search(first.text[:FIRST_BYTES]):
            return reader
    raise DataError(
        f"{source}: cannot determine the format from the name or first lines; expected "
        f"svmlight/libsvm (1 3:0.5), XMC text or CSV, or a name in {', '.join(READERS)}"
    )
