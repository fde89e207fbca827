"""Which reader takes a file, by its name or content."""

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
from hogbatch.data.raw import Columns, Options, RawSet
from hogbatch.data.signatures import FIRST_BYTES, LONGEST_SIGN, is_archive
from hogbatch.data.source import Source, opened
from hogbatch.data.text import blocks
from hogbatch.errors import DataError, UsageError

Reader = Callable[[Source, Options], RawSet]

READERS: Final[dict[str, Reader]] = {
    ".svm": libsvm.read,
    ".libsvm": libsvm.read,
    ".svmlight": libsvm.read,
    ".xmc": xmc.read,
    ".csv": csv.read,
    ".tsv": csv.read,
    ".npz": arrays.read,
}

# The options that change what is read of a text file: of those it may have several cache entries.
CONCERNED: Final[dict[Reader, tuple[str, ...]]] = {
    libsvm.read: ("index_base", "declared"),
    xmc.read: (),
    csv.read: ("label", "features", "header", "columns"),
}

# Tried in this order on the first lines of a file whose name tells nothing.
SIGNS: Final[tuple[tuple[re.Pattern[bytes], Reader], ...]] = (
    (re.compile(rb"\A\d+[ \t]+\d+[ \t]+\d+[ \t\r]*\n"), xmc.read),
    (re.compile(rb"(?m)(?:^|\s)\d+:[-+.\d]"), libsvm.read),
    (re.compile(rb"\A[^\n]*[,\t]"), csv.read),
)
PACKED_ENDINGS: Final = (".gz", ".bz2", ".xz")


def read(path: str | Path, cache: DataCache | None = None, **options: Any) -> RawSet:
    """Read a data file in the format its name, or else its beginning, tells.

    "-" is standard input. How the file is compressed is told by its first bytes. `options` are the
    fields of :class:`Options`. Text is taken from `cache` where it has been read before.
    """
    return read_as(path, Options(**options), cache)


def read_as(path: str | Path, options: Options, cache: DataCache | None = None) -> RawSet:
    """Read a data file as `options` say: see `read`."""
    if options.index_base not in (None, 0, 1):
        raise UsageError(f"index base must be 0 or 1; got {options.index_base!r}")
    if not 0 <= options.bad_lines <= 1:
        raise UsageError(f"bad lines must be a share from 0 to 1; got {options.bad_lines!r}")
    if options.header not in SETTINGS:
        raise UsageError(f"header must be one of {', '.join(SETTINGS)}; got {options.header!r}")
    with opened(path) as source:
        try:
            return _read(source, options, cache if source.lasting else None)
        except MemoryError as error:
            raise UsageError(
                f"{source}: there is not enough memory to read it: {error or 'out of memory'}; use "
                "fewer rows, or a machine with more memory"
            ) from None


def _read(source: Source, options: Options, cache: DataCache | None) -> RawSet:
    reader = _reader(source)
    if cache is None or reader not in CONCERNED:
        return reader(source, options)
    concerned = {name: _key(getattr(options, name)) for name in CONCERNED[reader]}
    raw = cache.read(source.path, concerned, lambda: reader(source, options))
    raw.skipped.check(source, raw.rows, options.bad_lines)  # the entry may be of another run
    return replace(raw, source=str(source))


def _key(value: str | int | Columns | None) -> str | int | None:
    """What stands for an option in the key of a cache entry; there may be very many names."""
    if isinstance(value, Columns):
        return blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()
    return value


def _reader(source: Source) -> Reader:
    """The reader for a file: arrays are told by their first bytes, text by its name or content."""
    with source.open() as file:
        if is_archive(file.read(LONGEST_SIGN)):
            return arrays.read
    plain = PurePath(source.name)
    while plain.suffix.lower() in PACKED_ENDINGS:
        plain = plain.with_suffix("")
    return READERS.get(plain.suffix.lower()) or _sniff(source)


def _sniff(source: Source) -> Reader:
    first = next(blocks(source), None)
    if first is None:
        raise DataError(f"{source} is empty; expected rows of numbers")
    for sign, reader in SIGNS:
        if sign.search(first.text[:FIRST_BYTES]):
            return reader
    raise DataError(
        f"{source}: neither the name nor the first lines tell the format; expected svmlight/libsvm "
        f"(1 3:0.5), XMC text or CSV, or a name in {', '.join(READERS)}"
    )
