"""Formats by name: which reader takes a file."""

import json
import re
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from hogbatch.data import arrays, csv, libsvm, xmc
from hogbatch.data.cache import DataCache
from hogbatch.data.header import SETTINGS
from hogbatch.data.raw import Columns, Options, RawSet
from hogbatch.data.text import blocks
from hogbatch.errors import DataError, UsageError

Reader = Callable[[Path, Options], RawSet]

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
FIRST_BYTES = 1 << 16


def read(path: str | Path, cache: DataCache | None = None, **options: Any) -> RawSet:
    """Read a data file in the format its name, or else its beginning, tells.

    `options` are the fields of :class:`Options`. Text is taken from `cache` where it has been read
    before.
    """
    return read_as(Path(path), Options(**options), cache)


def read_as(path: Path, options: Options, cache: DataCache | None = None) -> RawSet:
    """Read a data file as `options` say: see `read`."""
    if options.index_base not in (None, 0, 1):
        raise UsageError(f"index base must be 0 or 1; got {options.index_base!r}")
    if not 0 <= options.bad_lines <= 1:
        raise UsageError(f"bad lines must be a share from 0 to 1; got {options.bad_lines!r}")
    if options.header not in SETTINGS:
        raise UsageError(f"header must be one of {', '.join(SETTINGS)}; got {options.header!r}")
    reader = _reader(path)
    if cache is None or reader not in CONCERNED:
        return reader(path, options)
    concerned = {name: _key(getattr(options, name)) for name in CONCERNED[reader]}
    raw = cache.read(path, concerned, lambda: reader(path, options))
    raw.skipped.check(raw.source, raw.rows, options.bad_lines)  # the entry may be of another run
    return raw


def _key(value: str | int | Columns | None) -> str | int | None:
    """What stands for an option in the key of a cache entry; there may be very many names."""
    if isinstance(value, Columns):
        return blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()
    return value


def _reader(path: Path) -> Reader:
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    return READERS.get(plain.suffix.lower()) or _sniff(path)


def _sniff(path: Path) -> Reader:
    first = next(blocks(path), None)
    if first is None:
        raise DataError(f"{path} is empty")
    for sign, reader in SIGNS:
        if sign.search(first.text[:FIRST_BYTES]):
            return reader
    raise DataError(
        f"{path}: neither the name nor the first lines tell the format; "
        f"expected a name in {', '.join(READERS)}, with or without .gz"
    )
