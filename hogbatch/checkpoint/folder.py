"""Checkpoints of a run on disk: numbered directories, each of them whole or not there.

    000012/tensors.safetensors    the arrays, as any reader of safetensors finds them
    000012/manifest.json          one JSON object, in this order:
        crc32          eight hex digits: of the text behind them, from the blank on
        format         "hogbatch-checkpoint-1"
        description    what the writer had to say
        header         of the safetensors file, its length with it: bytes and crc32
        tensors        as they lie in the file: name to dtype, shape and crc32

So every byte of both files is under a checksum, and is looked at only after it has been found good.

The safetensors file is written and read here, not by the package: that writes through a file with a
name, which a killed process leaves behind, and has no errno for a full disk; and it reads by mmap,
where a failing disk is a SIGBUS.
"""

import json
import logging
import math
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.checkpoint.files import UNFINISHED, sync_directory, write_directory
from hogbatch.checkpoint.tensors import Arrays, header, in_file_order, pieces
from hogbatch.errors import DataError, SaveError, UsageError
from hogbatch.machine.budget import byte_size, require

FORMAT: Final = "hogbatch-checkpoint-1"
TENSORS: Final = "tensors.safetensors"
MANIFEST: Final = "manifest.json"
NUMBER: Final = re.compile(r"[0-9]{6,}")
LEFT: Final = re.compile(rf"\.{NUMBER.pattern}\..*{re.escape(UNFINISHED)}")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """What one directory holds."""

    path: Path
    arrays: Arrays  # any of DTYPES, any shape; they belong to the caller
    description: dict[str, Any]  # JSON


def write(
    folder: Path,
    arrays: Mapping[str, NDArray[Any]],
    description: Mapping[str, Any],
    check: Callable[[], None] = lambda: None,
) -> Path:
    """Write a checkpoint with the next number into `folder`, which is made (0700) where missing.

    It is on the disk when this returns. Nobody else may write into `folder` until then. Of arrays
    that change meanwhile it has every piece as it was when its turn came; `check` is called when
    all are written, and if it raises, nothing appears in `folder`. SaveError when writing fails;
    the earlier ones are then untouched. TypeError when an array is of a dtype that safetensors has
    no name for, or `description` is not JSON.
    """
    tensors = in_file_order(arrays)
    head = header(tensors)
    needed = len(head) + len(json.dumps(dict(description)))
    needed += sum(array.nbytes for array in tensors.values())
    checksums: dict[str, int] = {}

    def content() -> Iterator[bytes]:
        yield head
        for name, array in tensors.items():
            checksums[name] = 0
            for piece in pieces(array):
                checksums[name] = zlib.crc32(piece, checksums[name])
                yield piece

    def manifest() -> list[bytes]:
        check()
        return [_manifest(tensors, checksums, head, description)]

    try:
        _make(folder)
        path = folder / f"{_next_number(folder):06d}"
        write_directory(path, {TENSORS: content, MANIFEST: manifest})
    except OSError as error:
        reason = f"{error.strerror or error} ({_space(folder, needed)})"
        intact = "; earlier ones are intact" if _any(folder) else ""
        raise SaveError(f"{folder}: cannot save a checkpoint: {reason}{intact}") from error
    return path


def read(path: Path, into: Arrays | None = None) -> Checkpoint:
    """Read the checkpoint in directory `path`; DataError names the file, and the tensor if one.

    With `into`, only its arrays are read, by name and in place, and no memory is taken; after a
    DataError they may hold anything. Without, UsageError where the memory does not suffice.
    """
    file = path / MANIFEST
    try:
        manifest = _unsealed(file.read_bytes(), file)
        file = path / TENSORS
        with file.open("rb") as opened:
            arrays = dict(_read_tensors(opened, manifest, into))
        return Checkpoint(path, arrays, manifest["description"])
    except OSError as error:
        raise DataError(f"{file}: cannot read the checkpoint: {error.strerror or error}") from None
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path / MANIFEST}: the manifest is incomplete: {error!r}") from None


def newest_good(folder: Path, into: Arrays | None = None) -> tuple[Checkpoint | None, list[str]]:
    """Read the newest checkpoint that is good, as :func:`read` does; None if none is.

    With it one sentence about each newer one, newest first, and what is wrong with it.
    """
    bad: list[str] = []
    try:
        found = paths(folder)
    except OSError as error:
        return None, [f"{folder}: cannot look for checkpoints: {error.strerror}"]
    for path in found:
        try:
            return read(path, into), bad
        except DataError as error:
            bad.append(str(error))
    return None, bad


def paths(folder: Path) -> list[Path]:
    """All that is named as a checkpoint, newest first; OSError if `folder` cannot be listed."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    numbers = [name for name in names if NUMBER.fullmatch(name)]
    return [folder / number for number in sorted(numbers, key=int, reverse=True)]


def prune(folder: Path, keep: int) -> None:
    """Remove all but the `keep` newest checkpoints, and what killed writers have left.

    Nobody may write into `folder` meanwhile. What cannot be removed is logged and stays.
    """
    with _logged(folder):
        for path in paths(folder)[keep:]:
            remove(path)
        for left in folder.glob(f".*{UNFINISHED}"):
            if LEFT.fullmatch(left.name):
                with _logged(left):
                    _remove(left)


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        log.warning("%s: cannot be removed: %s", path, error.strerror or error)


def remove(path: Path) -> None:
    """Remove a checkpoint; one that cannot be removed, or has other files, is logged and stays."""
    with _logged(path):
        if others := sorted(set(os.listdir(path)) - {TENSORS, MANIFEST}):
            log.warning("%s: not removed, because it also holds %s", path, ", ".join(others))
            return
        # renamed first: nobody finds half of it
        left = path.with_name(f".{path.name}.old{UNFINISHED}")
        os.rename(path, left)
        _remove(left)


def _remove(path: Path) -> None:
    """Remove a file, or a directory of files."""
    if not path.is_dir() or path.is_symlink():
        path.unlink()
        return
    with ExitStack() as held:
        for file in path.iterdir():
            # Held open, so that its blocks are freed when all names are gone: that may take long,
            # and who is killed meanwhile leaves nothing behind.
            held.callback(os.close, os.open(file, os.O_RDONLY | os.O_CLOEXEC))
            file.unlink()
        path.rmdir()


def _make(folder: Path) -> None:
    with suppress(FileExistsError):
        folder.mkdir(0o700)
        sync_directory(folder.parent)


def _next_number(folder: Path) -> int:
    return max((int(path.name) for path in paths(folder)), default=0) + 1


def _space(folder: Path, needed: int) -> str:
    """What a checkpoint takes, and what there is; asked when a half-written one is gone again."""
    text = f"needs {byte_size(needed)}"
    with suppress(OSError):
        text += f", {byte_size(shutil.disk_usage(folder).free)} free"
    return text


def _any(folder: Path) -> bool:
    """Whether there are checkpoints in `folder`."""
    with suppress(OSError):
        return bool(paths(folder))
    return False


def _manifest(
    tensors: Arrays, checksums: Mapping[str, int], head: bytes, description: Mapping[str, Any]
) -> bytes:
    text = json.dumps(
        {
            "format": FORMAT,
            "description": dict(description),
            "header": {"bytes": len(head), "crc32": zlib.crc32(head)},
            "tensors": {
                name: {
                    "dtype": array.dtype.name,
                    "shape": array.shape,
                    "crc32": checksums[name],
                }
                for name, array in tensors.items()
            },
        }
    )
    rest = f" {text[1:]}\n".encode()
    return _seal(rest) + rest


def _seal(rest: bytes) -> bytes:
    """How a manifest begins that goes on with `rest`."""
    return b'{"crc32": "%08x",' % zlib.crc32(rest)


def _unsealed(text: bytes, file: Path) -> dict[str, Any]:
    """The manifest that `text` is; DataError if it is another file's, or damaged."""
    seal, rest = text[: len(_seal(b""))], text[len(_seal(b"")) :]
    if seal != _seal(rest):
        raise DataError(f"{file}: damaged, or no checkpoint's manifest (its CRC-32 is wrong)")
    manifest: dict[str, Any] = json.loads(text)
    if manifest.get("format") != FORMAT:
        raise DataError(f"{file}: expected the format {FORMAT}; got {manifest.get('format')}")
    return manifest


def _read_tensors(
    file: BufferedReader, manifest: Mapping[str, Any], into: Arrays | None
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Read tensors of a safetensors file; DataError if it is not just what was written."""
    head = manifest["header"]
    if zlib.crc32(file.read(head["bytes"])) != head["crc32"]:
        raise DataError(f"{file.name}: the header is damaged (its CRC-32 is wrong)")
    tensors = manifest["tensors"]
    if into is None:
        require(sum(map(_size, tensors.values())), f"reading {file.name}", "end other programs")
    for name, stored in tensors.items():
        array = _place(name, stored, into, file.name)
        if array is None:
            file.seek(_size(stored), os.SEEK_CUR)
            continue
        got = file.readinto(_bytes(array))
        if got != array.nbytes:
            raise DataError(
                f"{file.name}: tensor {name} is cut off: expected {array.nbytes} bytes; got {got}"
            )
        if zlib.crc32(_bytes(array)) != stored["crc32"]:
            raise DataError(f"{file.name}: tensor {name} is damaged (its CRC-32 is wrong)")
        yield name, array
    if file.read(1):
        raise DataError(f"{file.name}: longer than its manifest says")


def _size(stored: Mapping[str, Any]) -> int:
    """Bytes of a tensor as its manifest describes it."""
    count: int = math.prod(stored["shape"])
    return count * int(np.dtype(stored["dtype"]).itemsize)


def _place(
    name: str, stored: Mapping[str, Any], into: Arrays | None, file: str
) -> NDArray[Any] | None:
    """The array to read tensor `name` into; None if it is not wanted."""
    if into is None:
        return np.empty(stored["shape"], stored["dtype"])
    array = into.get(name)
    if array is not None and (list(array.shape), array.dtype.name) != (
        list(stored["shape"]),
        stored["dtype"],
    ):
        raise DataError(
            f"{file}: tensor {name}: expected {array.dtype}{list(array.shape)}; "
            f"got {stored['dtype']}{stored['shape']}"
        )
    return array


def _bytes(array: NDArray[Any]) -> memoryview:
    """View a contiguous array as it lies in memory."""
    return array.reshape(-1).view(np.uint8).data
