"""Selection of the reader for a file by its name or content."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from hogbatch.data import arrays, libsvm, pictures, time_series, xmc
from hogbatch.data.cache import DataCache
from hogbatch.data.pieces import CELL, in_memory, text_pieces
from hogbatch.data.progress import ReadProgress
from hogbatch.data.raw import RawSet, ReadOptions
from hogbatch.data.signatures import FIRST_BYTES, MAX_MAGIC_BYTES, compression_of, is_archive
from hogbatch.data.source import Source, files_in, opened
from hogbatch.data.stored import RAW_SETS
from hogbatch.data.table import read as table
from hogbatch.data.table.given import encode_numbers
from hogbatch.data.text import blocks
from hogbatch.errors import DataError, UsageError

Reader = Callable[[Source, ReadOptions], RawSet]

READERS: Final[dict[str, Reader]] = {
    ".svm": libsvm.read,
    ".libsvm": libsvm.read,
    ".svmlight": libsvm.read,
    ".xmc": xmc.read,
    ".csv": table.read,
    ".tsv": table.read,
    ".npz": arrays.read,
    ".ts": time_series.read,
}

# Options that affect the result of parsing a text file; they are part of the cache key.
RELEVANT_OPTIONS: Final[dict[Reader, tuple[str, ...]]] = {
    libsvm.read: ("index_base", "declared", "labels", "lists"),
    xmc.read: (),
}

# Tried in this order on the first lines of a file whose name does not determine the format.
CONTENT_PATTERNS: Final[tuple[tuple[re.Pattern[bytes], Reader], ...]] = (
    (re.compile(rb"(?im)^@problemname\b"), time_series.read),
    (re.compile(rb"\A\d+[ \t]+\d+[ \t]+\d+[ \t\r]*\n"), xmc.read),
    (re.compile(rb"(?m)(?:^|\s)\d+:[-+.\d]"), libsvm.read),
    (re.compile(rb"\A[^\n]*[,\t;|]"), table.read),
)
COMPRESSED_SUFFIXES: Final = (".gz", ".bz2", ".xz")


def read_as(path: str | Path, options: ReadOptions, cache: DataCache | None = None) -> RawSet:
    """Read a data file; the format is determined from its name, or else from its first lines.

    "-" is standard input. Compression is detected from the first bytes. Text files that were read
    before are taken from `cache`.
    """
    with opened(path, options.progress) as source:
        try:
            raw = _read(source, options, cache if source.persistent else None)
            return raw.labelled() if options.labels else raw
        except MemoryError as error:
            reason = str(error) or "an allocation failed"
            raise UsageError(
                f"{source}: not enough memory to read it: {reason}; use fewer rows, or a "
                "machine with more memory"
            ) from None
        finally:
            source.progress.end()


Piece: TypeAlias = table.TableFile | Source  # of a table, or of libsvm text


class LargeFile(NamedTuple):
    """A data file that can be read in pieces."""

    source: Source
    bytes: int  # about those of its rows as read
    rows: int | None  # at most; None: of compressed text, not known
    table: bool  # else libsvm text


def large_file(path: Path, options: ReadOptions) -> LargeFile | None:
    """A CSV or libsvm file, or a table in another format, with its size; None for others."""
    source = Source(path, progress=options.progress or ReadProgress())
    files = files_in(path) if path.is_dir() else [path]
    size = sum(each.stat().st_size for each in files)
    if not size:
        return None
    first = Source(files[0])
    if table.is_columnar_file(first):
        from hogbatch.data.table.arrow.files import rows_and_columns  # here: PyArrow is large

        rows, columns = rows_and_columns(path, str(source))
        return LargeFile(source, CELL * rows * columns, rows, table=True)
    reader = _reader(source)
    if reader not in (table.read, libsvm.read):
        return None
    with first.open() as file:
        compressed = compression_of(file.read(MAX_MAGIC_BYTES)) is not None
    # A cell of a table has at least one byte with what ends it, and so has a row of libsvm text.
    is_table = reader is table.read
    least = len(table.open_table(source, options).form.names) if is_table else 1
    return LargeFile(source, size, None if compressed else size // least + 1, is_table)


def pieces_of(
    large: LargeFile, options: ReadOptions, piece_bytes: int | None = None
) -> Iterator[Piece]:
    """Yield a file in pieces of about `piece_bytes` (None: `pieces.PIECE_BYTES`)."""
    if large.table:
        return table.pieces_of(large.source, options, piece_bytes)
    return text_pieces(large.source, piece_bytes)


def read_together(pieces: Sequence[Piece], options: ReadOptions) -> RawSet:
    """Read pieces of a file (at least one) as `read_as` reads a file with their rows."""
    tables = [piece for piece in pieces if isinstance(piece, table.TableFile)]
    texts = [piece for piece in pieces if isinstance(piece, Source)]
    if tables:
        raw = table.read_file(table.together(tables), options)
    else:
        contents = [piece.path.read_bytes() for piece in texts]
        first = texts[0].first_line
        raw = libsvm.read(in_memory(texts[0], contents, first), options)
        assert raw.lines is not None
        starts = np.cumsum([first, *(content.count(b"\n") for content in contents)])[:-1]
        shifts = np.array([piece.first_line for piece in texts]) - starts
        own = np.searchsorted(starts, raw.lines, side="right") - 1  # the piece of each row
        raw = _encoded(replace(raw, lines=raw.lines + shifts[own]), options)
    return raw.labelled() if options.labels else raw


def _read(source: Source, options: ReadOptions, cache: DataCache | None) -> RawSet:
    if (reader := _reader(source)) is table.read:
        return table.read(source, options, cache)
    if options.table is not None and options.table.given and reader is not arrays.read:
        raise DataError(
            f"{source}: --drop, --categorical, --numeric and --text name columns; expected a CSV, "
            "Parquet, Arrow or Feather file with these columns"
        )

    if options.group is not None or options.time is not None:
        raise DataError(
            f"{source}: --group and --time name a column of a table; expected a CSV, Parquet, "
            "Arrow or Feather file with this column"
        )
    if options.weight is not None and reader is not arrays.read:
        raise DataError(
            f"{source}: --sample-weight names a column of a table, or an array of a .npz file; "
            "expected one of these"
        )

    def parse() -> RawSet:
        source.begin_reading()
        return reader(source, options)

    if cache is None or reader not in RELEVANT_OPTIONS:
        raw = parse()
    else:
        relevant = {name: getattr(options, name) for name in RELEVANT_OPTIONS[reader]}
        raw = cache.read(source.path, relevant, parse, RAW_SETS)
        # The entry may be from a run with other --bad-lines.
        raw.skipped.check(source, raw.rows, options.bad_lines)
        raw = replace(raw, source=str(source))
    return _encoded(raw, options)


def _encoded(raw: RawSet, options: ReadOptions) -> RawSet:
    if options.encoding is None:
        return raw
    inputs = encode_numbers(raw.inputs, raw.features, options.encoding, raw.source)
    return replace(raw, inputs=inputs, features=options.encoding.features)


def _reader(source: Source) -> Reader:
    """The reader for a file or folder, by its files, the first bytes, the name or the content."""
    if pictures.pictures_in(source.path):
        return pictures.read
    if table.is_columnar_file(source):
        return table.read
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
