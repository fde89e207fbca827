"""Text files kept in binary form, so that the next run need not parse them.

The cache directory holds one entry for each text file and the reader options that concern it:

    8 hex digits, a blank, JSON, a newline    the CRC-32 of what follows the blank, and the header
    array, array, ...                         as the header lists them

The header says what the entry was made from (path, options, state of the file, the readers' own
sources) and has the scalars of a RawSet and each array's name, dtype, shape and CRC-32. Names of
columns, of which there may be very many, are an array of bytes: JSON as well. An entry
that is damaged, or was made from anything else, counts for nothing, and the next one takes its
place by a rename. Nothing that fails here fails a run.

Entries are read, not mapped: that takes no longer than the checksums do, and a disk or file server
that fails gives an error here and not a SIGBUS in the middle of a run.
"""

import errno
import json
import math
import os
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import DoubleInputs, Inputs
from hogbatch.data.raw import Columns, LabelLists, RawSet
from hogbatch.data.skipped import Mistake, Skipped
from hogbatch.errors import UsageError
from hogbatch.machine import budget
from hogbatch.machine.cachedir import cache_root

ENDING: Final = ".hogdata"
UNFINISHED: Final = ".hogdata-tmp"
ABANDONED_S: Final = 3600.0  # an unfinished entry this old belongs to a process that was killed
SLOW_S: Final = 0.5  # what is read faster is not worth its space
# A file may change twice within one tick of its clock (2 s on FAT) and look the same, so that the
# state of a file that has just been written says nothing.
TICK_NS: Final = 2_000_000_000
FREE_BYTES: Final = 1 << 30  # an entry leaves as much of the disk free,
FREE_FRACTION: Final = 0.1  # and this share of it
HEADER_BYTES: Final = 1 << 16  # at most
FEWER: Final = "use fewer rows, or a machine with more memory"

ResumePoint = dict[str, Any]  # what an entry is made from, in terms of JSON
Options = Mapping[str, str | int | None]
Arrays = dict[str, NDArray[Any]]
Say = Callable[[str], object]


def _nothing(line: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, slots=True)
class DataCache:
    """A directory of entries; `say` is told in one line when one is used, made, or cannot be."""

    directory: Path
    say: Say = _nothing
    slow_s: float = SLOW_S  # how long a file takes to read that is worth an entry

    @classmethod
    def of(cls, setting: str, say: Say = _nothing) -> "DataCache | None":
        """The cache that `--data-cache` asks for: "auto", "off" (None), or a directory."""
        if setting == "off":
            return None
        if setting != "auto":
            return cls(Path(setting), say)
        try:
            return cls(cache_root() / "data", say)
        except UsageError:  # none can be written; that is reported when kernels are compiled
            return None

    def read(self, path: Path, options: Options, parse: Callable[[], RawSet]) -> RawSet:
        """Take the rows of a text file from its entry, or `parse` it and make one if that is slow.

        `options` are those that change what `parse` returns.
        """
        begun, now = time.perf_counter(), time.time_ns()
        origin = _origin(path, options)
        if origin is None:
            return parse()
        entry = self._entry(origin)
        raw = _load(entry, origin)
        if raw is not None:
            self.say(f"{path}: read from the cache in {time.perf_counter() - begun:.2f} s")
            return replace(raw, source=str(path))
        raw = parse()
        slow = time.perf_counter() - begun >= self.slow_s
        if slow and origin["mtime_ns"] < now - TICK_NS and _origin(path, options) == origin:
            self._keep(entry, origin, raw)
        return raw

    def _entry(self, origin: ResumePoint) -> Path:
        key = json.dumps([origin["path"], origin["options"]], sort_keys=True).encode()
        return self.directory / (blake2b(key, digest_size=16).hexdigest() + ENDING)

    def _keep(self, entry: Path, origin: ResumePoint, raw: RawSet) -> None:
        arrays = _arrays(raw)
        size = sum(array.nbytes for array in arrays.values())
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._sweep()
            _check_space(self.directory, size)
            _write(entry, _header(origin, raw, arrays), arrays)
        except OSError as error:
            why = error.strerror or str(error)
            self.say(f"{raw.source}: cannot be kept in the cache {self.directory}: {why}")
        else:
            self.say(f"{raw.source}: kept in the cache {self.directory} ({size / 1e6:.0f} MB)")

    def _sweep(self) -> None:
        """Remove entries whose file has changed or gone, and what killed processes have left."""
        for entry in self.directory.glob(f"*{ENDING}"):
            with suppress(OSError):
                if _outdated(entry):
                    entry.unlink()
        for unfinished in self.directory.glob(f"*{UNFINISHED}"):
            with suppress(OSError):
                if unfinished.stat().st_mtime < time.time() - ABANDONED_S:
                    unfinished.unlink()


def _origin(path: Path, options: Options) -> ResumePoint | None:
    """Tell the state of a file as it is read now; None for what is no file, such as a pipe."""
    try:
        state = path.stat()
    except OSError:  # the reader will say what is wrong
        return None
    if not stat.S_ISREG(state.st_mode):
        return None
    return {
        "path": os.path.abspath(path),
        "options": dict(options),
        "readers": _readers(),
        "size": state.st_size,
        "mtime_ns": state.st_mtime_ns,
        "ctime_ns": state.st_ctime_ns,  # copying sets the mtime back, but not this one
    }


@cache
def _readers() -> str:
    """Name the readers by their sources: others may read the same file otherwise."""
    folder, digest = Path(__file__).parent, blake2b(digest_size=8)
    for source in sorted((*folder.glob("*.py"), *folder.glob("parse/*.py"))):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _check_space(directory: Path, size: int) -> None:
    disk = shutil.disk_usage(directory)
    if disk.free - size < max(FREE_BYTES, disk.total * FREE_FRACTION):
        raise OSError(errno.ENOSPC, "the disk is nearly full")


def _arrays(raw: RawSet) -> Arrays:
    """Name the arrays that `raw` has."""
    lists = raw.label_lists
    arrays: dict[str, NDArray[Any] | None] = {
        "columns": np.frombuffer(json.dumps(raw.columns).encode(), np.uint8),
        **raw.inputs._asdict(),
        "labels": raw.labels,
        "label_indptr": lists and lists.indptr,
        "label_indices": lists and lists.indices,
        "lines": raw.lines,
    }
    return {
        name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None
    }


def _raw_set(header: Mapping[str, Any], arrays: Arrays) -> RawSet:
    lists = "label_indptr" in arrays
    form = DoubleInputs if arrays["dense"].dtype == np.float64 else Inputs
    names, label, position = json.loads(arrays["columns"].tobytes())
    return RawSet(
        inputs=form(*(arrays[name] for name in form._fields)),
        features=header["features"],
        labels=arrays.get("labels"),
        label_lists=LabelLists(arrays["label_indptr"], arrays["label_indices"]) if lists else None,
        source=header["origin"]["path"],
        classes_hint=header["classes_hint"],
        index_base=header["index_base"],
        lines=arrays.get("lines"),
        skipped=Skipped(header["skipped"], tuple(Mistake(*each) for each in header["mistakes"])),
        columns=Columns(tuple(names), label, position),
        notes=tuple(header["notes"]),
    )


def _header(origin: ResumePoint, raw: RawSet, arrays: Arrays) -> bytes:
    header = {
        "origin": origin,
        "features": raw.features,
        "classes_hint": raw.classes_hint,
        "index_base": raw.index_base,
        "skipped": raw.skipped.total,
        "mistakes": raw.skipped.first,
        "notes": raw.notes,
        "arrays": [
            (name, array.dtype.str, array.shape, zlib.crc32(_bytes(array)))
            for name, array in arrays.items()
        ],
    }
    text = json.dumps(header).encode() + b"\n"
    return b"%08x %b" % (zlib.crc32(text), text)


def _bytes(array: NDArray[Any]) -> memoryview:
    """View a contiguous array as it lies in memory."""
    return array.reshape(-1).view(np.uint8).data


def _write(entry: Path, header: bytes, arrays: Arrays) -> None:
    """Write an entry at once or not at all, for this user alone."""
    descriptor, unfinished = tempfile.mkstemp(dir=entry.parent, suffix=UNFINISHED)  # mode 0600
    try:
        with open(descriptor, "wb") as file:
            file.write(header)
            for array in arrays.values():
                file.write(_bytes(array))
        os.replace(unfinished, entry)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise


def _load(entry: Path, origin: ResumePoint) -> RawSet | None:
    """Read an entry, if it is whole and made from `origin`."""
    try:
        with entry.open("rb") as file:
            header = _read_header(file)
            if header is None or header["origin"] != origin:
                return None
            sizes = (
                np.dtype(kind).itemsize * math.prod(shape) for _, kind, shape, _ in header["arrays"]
            )
            budget.require(sum(sizes), f"the rows of {origin['path']}", FEWER)
            arrays = dict(_read_arrays(file, header["arrays"]))
    except UsageError:  # too little memory; it is a ValueError
        raise
    except (OSError, ValueError):
        return None
    return _raw_set(header, arrays)


def _read_header(file: BufferedReader) -> dict[str, Any] | None:
    """Read the first line; None if it is damaged."""
    checksum, _, text = file.readline(HEADER_BYTES).partition(b" ")
    if checksum != b"%08x" % zlib.crc32(text):
        return None
    header: dict[str, Any] = json.loads(text)
    return header


def _read_arrays(file: BufferedReader, stored: list[Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Read arrays as the header has them; ValueError if one is damaged."""
    for name, dtype, shape, checksum in stored:
        array = np.empty(shape, dtype)
        whole = file.readinto(_bytes(array)) == array.nbytes
        if not whole or zlib.crc32(_bytes(array)) != checksum:
            raise ValueError(f"{name} is damaged")
        yield name, array


def _outdated(entry: Path) -> bool:
    with entry.open("rb") as file:
        header = _read_header(file)
    if header is None:
        return True
    origin: ResumePoint = header["origin"]
    return origin != _origin(Path(origin["path"]), origin["options"])
