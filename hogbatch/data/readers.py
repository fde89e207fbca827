"""Formats by name: which reader takes a file."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hogbatch.data import arrays, csv, libsvm, xmc
from hogbatch.data.cache import DataCache
from hogbatch.data.raw import Options, RawSet
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
    libsvm.read: ("index_base",),
    xmc.read: (),
    csv.read: ("label", "features"),
}

# Tried in this order on the first lines of a file whose name tells nothing.
SIGNS: Final[tuple[tuple[re.Pattern[bytes], Reader], ...]] = (
    (re.compile(rb"\A\d+[ \t]+\d+[ \t]+\d+[ \t\r]*\n"), xmc.read),
    (re.compile(rb"(?m)(?:^|\s)\d+:[-+.\d]"), libsvm.read),
    (re.compile(rb"\A[^\n]*[,\t]"), csv.read),
)
FIRST_BYTES = 1 << 16


def read(
    path: str | Path,
    *,
    label: str | None = None,
    index_base: int | None = None,
    features: int | None = None,
    threads: int | None = None,
    cache: DataCache | None = None,
) -> RawSet:
    """Read a data file in the format its name, or else its beginning, tells.

    `label` is the label column of a CSV, `index_base` where libsvm features count from (0, 1, or
    None: found out), `features` the inputs of the model that the rows are for, if there is one,
    and `threads` how many parse text (None: as many as this process may use). Text is taken from
    `cache` where it has been read before.
    """
    if index_base not in (None, 0, 1):
        raise UsageError(f"index base must be 0 or 1; got {index_base!r}")
    path = Path(path)
    reader, options = _reader(path), Options(label, index_base, features, threads)
    if cache is None or reader not in CONCERNED:
        return reader(path, options)
    concerned = {name: getattr(options, name) for name in CONCERNED[reader]}
    return cache.read(path, concerned, lambda: reader(path, options))


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
