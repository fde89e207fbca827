"""Checkpoints of a run on disk: numbered directories, each either complete or absent.

    000012/tensors.safetensors    the arrays, readable by any safetensors reader
    000012/manifest.json          one JSON object, in this order:
        crc32          eight hex digits: checksum of the text after them, from the blank on
        format         "hogbatch-checkpoint-1"
        description    JSON from the caller
        header         of the safetensors file including its length: bytes and crc32
        tensors        in file order: name to dtype, shape and crc32

Every byte of both files is covered by a checksum and is used only after the checksum was verified.

The safetensors package cannot be used: arrays change while they are written, it reports no errno
for a full disk, and it reads through mmap, where a failing disk causes a SIGBUS.
"""

import json
import logging
import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import numpy as np
from msgspec import Meta, Struct, structs
from numpy.typing import NDArray

from hogbatch.errors import DataError, SaveError
from hogbatch.machine import files
from hogbatch.machine.budget import byte_size, require
from hogbatch.machine.files import TEMPORARY_SUFFIX
from hogbatch.model.tensors import DTYPES, Arrays, header, in_file_order, pieces

FORMAT: Final = "hogbatch-checkpoint-1"
TENSORS: Final = "tensors.safetensors"
MANIFEST: Final = "manifest.json"
NUMBER: Final = re.compile(r"[0-9]{6,}")
LEFTOVER: Final = re.compile(rf"\.{NUMBER.pattern}\..*{re.escape(TEMPORARY_SUFFIX)}")
MAX_CELLS: Final = 1 << 60  # of a tensor, so that NumPy can compute its size in bytes

Checksum = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]

log = logging.getLogger(__name__)


class StoredHeader(Struct, frozen=True):
    """The header of the safetensors file."""

    bytes: Size
    crc32: Checksum


class StoredTensor(Struct, frozen=True):
    """A tensor of the safetensors file."""

    dtype: str
    shape: Annotated[list[Size], Meta(max_length=32)]
    crc32: Checksum

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"Expected one of {', '.join(DTYPES)}; got {self.dtype!r}")
        if math.prod(size or 1 for size in self.shape) > MAX_CELLS:
            raise ValueError(f"Expected a shape of at most 2^60 cells; got {self.shape}")

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Manifest(Struct, frozen=True):
    """The contents of a manifest after its checksum."""

    format: str
    description: dict[str, Any]
    header: StoredHeader
    tensors: dict[str, StoredTensor]


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """The contents of one checkpoint directory."""

    path: Path
    arrays: Arrays  # of any shape and dtype in DTYPES; owned by the caller
    description: dict[str, Any]  # JSON


def write(
    folder: Path,
    arrays: Mapping[str, NDArray[Any]],
    description: Mapping[str, Any],
    check: Callable[[], None] = lambda: None,
) -> Path:
    """Write a checkpoint with the next number into `folder`, creating it (0700) if missing.

    The checkpoint is on disk when this returns. No other process may write into `folder` meanwhile.
    Arrays may change while they are written; each piece is stored as it was when it was copied.
    `check` is called after all arrays are written, and if it raises, nothing appears in `folder`.
    SaveError when writing fails; earlier checkpoints stay unchanged. TypeError if safetensors does
    not support the dtype of an array, or if `description` is not JSON.
    """
    tensors = in_file_order(arrays)
    head = header(tensors)
    checksums: dict[str, int] = {}

    def content() -> Iterator[bytes]:
        yield head
        for name, array in tensors.items():
            checksums[name] = 0
            for piece in pieces(array):
                checksums[name] = zlib.crc32(piece, checksums[name])
                yield piece

    def manifest() -> Iterator[bytes]:
        check()
        yield _manifest(tensors, checksums, head, description)

    try:
        with suppress(FileExistsError):
            folder.mkdir(0o700)
            files.sync_directory(folder.parent)
        last = max((int(path.name) for path in paths(folder)), default=0)
        path = folder / f"{last + 1:06d}"
        files.write_directory(path, {TENSORS: content(), MANIFEST: manifest()})
    except OSError as error:
        needed = byte_size(sum(array.nbytes for array in tensors.values()))
        reason = f"{error.strerror or error} (needs {needed}); earlier ones are intact"
        raise SaveError(f"{folder}: cannot save a checkpoint: {reason}") from error
    return path


def read(path: Path, into: Arrays | None = None) -> Checkpoint:
    """Read the checkpoint in directory `path`; DataError names the damaged file and tensor.

    With `into`, only the arrays named there are read, in place and without allocating memory; after
    a DataError their contents are undefined. Without it, UsageError if there is not enough memory.
    """
    file = path / MANIFEST
    try:
        manifest = _parse_manifest(file.read_bytes(), file)
        file = path / TENSORS
        with file.open("rb") as opened:
            arrays = dict(_read_tensors(opened, manifest, into))
        return Checkpoint(path, arrays, manifest.description)
    except OSError as error:
        raise DataError(f"{file}: cannot read the checkpoint: {error.strerror or error}") from None


def newest_intact(
    folder: Path,
    into: Arrays | None = None,
    check: Callable[[Checkpoint], object] = lambda checkpoint: None,
) -> tuple[Checkpoint | None, list[str]]:
    """Read the newest usable checkpoint with :func:`read`; None if there is none.

    `check` raises DataError for a checkpoint that cannot be used. Also returns one sentence for
    each newer checkpoint, newest first, that says why it is unusable.
    """
    bad: list[str] = []
    try:
        found = paths(folder)
    except OSError as error:
        return None, [f"{folder}: cannot list checkpoints: {error.strerror}"]
    for path in found:
        try:
            check(checkpoint := read(path, into))
            return checkpoint, bad
        except DataError as error:
            bad.append(str(error))
    return None, bad


def paths(folder: Path) -> list[Path]:
    """All entries with the name of a checkpoint, newest first; OSError if listing fails."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    numbers = [name for name in names if NUMBER.fullmatch(name)]
    return [folder / number for number in sorted(numbers, key=int, reverse=True)]


def prune(folder: Path, keep: int) -> None:
    """Remove all but the `keep` newest checkpoints, and incomplete ones of killed processes.

    No other process may write into `folder` meanwhile. Failures to remove are logged.
    """
    with _logged(folder):
        for path in paths(folder)[keep:]:
            remove(path)
        for left in folder.glob(f".*{TEMPORARY_SUFFIX}"):
            if LEFTOVER.fullmatch(left.name):
                with _logged(left):
                    files.remove(left)


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        log.warning("%s: cannot remove it: %s", path, error.strerror or error)


def remove(path: Path) -> None:
    """Remove a checkpoint; keep it and log a warning if that fails or it contains other files."""
    with _logged(path):
        if others := sorted(set(os.listdir(path)) - {TENSORS, MANIFEST}):
            log.warning("%s: not removed, because it also contains %s", path, ", ".join(others))
            return
        # renamed first, so that readers never find an incomplete one
        left = path.with_name(f".{path.name}.old{TEMPORARY_SUFFIX}")
        os.rename(path, left)
        files.remove(left)


def _manifest(
    tensors: Arrays, checksums: Mapping[str, int], head: bytes, description: Mapping[str, Any]
) -> bytes:
    stored = {
        name: StoredTensor(array.dtype.name, list(array.shape), checksums[name])
        for name, array in tensors.items()
    }
    start = StoredHeader(len(head), zlib.crc32(head))
    manifest = Manifest(FORMAT, dict(description), start, stored)
    rest = f" {json.dumps(manifest, default=structs.asdict)[1:]}\n".encode()
    return _seal(rest) + rest


def _seal(rest: bytes) -> bytes:
    """The start of a manifest whose remaining text is `rest`."""
    return b'{"crc32": "%08x",' % zlib.crc32(rest)


def _parse_manifest(text: bytes, file: Path) -> Manifest:
    """Parse a manifest; DataError if it is damaged or not a manifest."""
    seal, rest = text[: len(_seal(b""))], text[len(_seal(b"")) :]
    if seal != _seal(rest):
        raise DataError(f"{file}: damaged, or not a checkpoint manifest (CRC-32 mismatch)")
    try:
        manifest = msgspec.convert(json.loads(text), Manifest)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise DataError(f"{file}: not a valid manifest: {error}") from None
    if manifest.format != FORMAT:
        raise DataError(f"{file}: expected the format {FORMAT}; got {manifest.format}")
    return manifest


def _read_tensors(
    file: BufferedReader, manifest: Manifest, into: Arrays | None
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Read tensors of a safetensors file; DataError if it differs from its manifest."""
    tensors, head = manifest.tensors, manifest.header
    stated = sum(stored.nbytes for stored in tensors.values())
    size = os.fstat(file.fileno()).st_size
    if size != head.bytes + stated:
        raise DataError(
            f"{file.name}: expected {head.bytes + stated} bytes as stated in its manifest; got "
            f"{size}"
        )
    if zlib.crc32(file.read(head.bytes)) != head.crc32:
        raise DataError(f"{file.name}: the header is damaged (CRC-32 mismatch)")
    if into is None:
        require(stated, f"reading {file.name}", "close other programs")
    for name, stored in tensors.items():
        array = _place(name, stored, into, file.name)
        if array is None:
            file.seek(stored.nbytes, os.SEEK_CUR)
            continue
        file.readinto(_bytes(array))
        if zlib.crc32(_bytes(array)) != stored.crc32:
            raise DataError(f"{file.name}: tensor {name} is damaged (CRC-32 mismatch)")
        yield name, array


def _place(name: str, stored: StoredTensor, into: Arrays | None, file: str) -> NDArray[Any] | None:
    """The array to read tensor `name` into; None to skip it."""
    if into is None:
        return np.empty(stored.shape, stored.dtype)
    array = into.get(name)
    if array is not None and (list(array.shape), array.dtype.name) != (stored.shape, stored.dtype):
        raise DataError(
            f"{file}: tensor {name}: expected {array.dtype}{list(array.shape)}; "
            f"got {stored.dtype}{stored.shape}"
        )
    return array


def _bytes(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
