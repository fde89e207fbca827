"""Selection of the reader for a file by its name or content."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import Any, Final

from hogbatch.data import arrays, csv, libsvm, xmc
from hogbatch.data.cache import DataCache
from hogbatch.data.header import SETTINGS
from hogbatch.data.raw import Columns, RawSet, ReadOptions
from hogbatch.data.signatures import FIRST_BYTES, MAX_MAGIC_BYTES, is_archive
from hogbatch.data.source import Source, opened
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
    (re.compile(rb"\A[^\n]*[,\t]"), csv.read),
)
COMPRESSED_SUFFIXES: Final = (".gz", ".bz2", ".xz")


def read(path: str | Path, cache: DataCache | None = None, **options: Any) -> RawSet:
    """Read a data file; the format is determined from its name, or else from its first lines.

    "-" is standard input. Compression is detected from the first bytes. `options` are the fields
    of :class:`ReadOptions`. Text files that were read before are taken from `cache`.
    """
    return read_as(path, ReadOptions(**options), cache)


def read_as(path: str | Path, options: ReadOptions, cache: DataCache | None = None) -> RawSet:
    """Read a data file with `options`; see `read`."""
    if options.index_base not in (None, 0, 1):
        raise UsageError(f"index base must be 0 or 1; got {options.index_base!r}")
    if not 0 <= options.bad_lines <= 1:
        raise UsageError(f"bad lines must be a fraction from 0 to 1; got {options.bad_lines!r}")
    if options.header not in SETTINGS:
        raise UsageError(f"header must be one of {', '.join(SETTINGS)}; got {options.header!r}")
    with opened(path) as source:
        try:
            return _read(source, options, cache if source.persistent else None)
        except MemoryError as error:
            raise UsageError(
                f"{source}: not enough memory to read it: {error or 'out of memory'}; use "
                "fewer rows, or a machine with more memory"
            ) from None


def _read(source: Source, options: ReadOptions, cache: DataCache | None) -> RawSet:
    reader = _reader(source)
    if cache is None or reader not in RELEVANT_OPTIONS:
        return reader(source, options)
    relevant = {name: _key(getattr(options, name)) for name in RELEVANT_OPTIONS[reader]}
    raw = cache.read(source.path, relevant, lambda: reader(source, options))
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
