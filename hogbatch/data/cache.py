"""A cache of parsed text files in binary form.

The cache directory has one entry per text file and set of reader options that affect the result. An
entry is a sequence of arrays in the format of `numpy.save`:

    checksums       the CRC-32 of each of the other arrays, with its type and shape
    header          JSON: the origin of the entry (path, options, state of the file, a digest of the
                    readers' source code), the names of the arrays, and scalars
    array, ...      with the scalars, sparse rows or columns of a table (`stored`)

An entry that is damaged, has a different origin, or has contents that no reader returns is ignored
and replaced by a rename. Errors of the cache never fail a run.

Entries are read, not mapped: a failing disk or file server raises an error here instead of causing
a SIGBUS during the run.
"""

import errno
import json
import os
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from hogbatch.data.schema import convert
from hogbatch.errors import UsageError
from hogbatch.machine import budget
from hogbatch.machine.cachedir import cache_root, make_directory

SUFFIX: Final = ".hogdata"
TEMPORARY_SUFFIX: Final = ".hogdata-tmp"
ABANDONED_S: Final = 3600.0  # an unfinished entry this old is from a killed process
MIN_PARSE_S: Final = 0.5  # files that are parsed faster are not cached
# A file may change twice within one tick of the file system's clock (2 s on FAT) without a visible
# difference, so the state of a file that has just been written is not reliable.
CLOCK_TICK_NS: Final = 2_000_000_000
MIN_FREE_FRACTION: Final = 0.1  # of the disk stays free after writing an entry, but at least
MIN_FREE_BYTES: Final = 1 << 30  # this, and never more than
MAX_FREE_BYTES: Final = 10 << 30  # this is required
ADVICE: Final = "use fewer rows, or a machine with more memory"

Origin = dict[str, Any]  # the file and options of an entry, as JSON
Arrays = dict[str, NDArray[Any]]
MessageCallback = Callable[[str], object]
ContentT = TypeVar("ContentT")


class EntryHeader(NamedTuple):
    """The header of an entry."""

    origin: Origin
    arrays: tuple[str, ...]  # their names, in order
    scalars: Any  # of the content


class CacheForm(NamedTuple, Generic[ContentT]):
    """The storage format of the content of an entry."""

    pack: Callable[[ContentT], tuple[Any, Arrays]]  # scalars, as JSON, and arrays
    unpack: Callable[[Any, Arrays], ContentT]  # ValueError for other contents


@dataclass(frozen=True, slots=True)
class DataCache:
    """A cache directory; `report` gets one line when an entry is used, written, or fails."""

    directory: Path
    report: MessageCallback = lambda line: None
    min_parse_s: float = MIN_PARSE_S  # minimum parsing time of files that are cached

    @classmethod
    def of(cls, setting: str, report: MessageCallback = lambda line: None) -> "DataCache | None":
        """The cache for a value of `--data-cache`: "auto", "off" (None), or a directory."""
        if setting == "off":
            return None
        if setting != "auto":
            return cls(Path(setting), report)
        try:
            return cls(cache_root() / "data", report)
        except UsageError:  # no writable directory; reported when kernels are compiled
            return None

    def read(
        self,
        path: Path,
        options: Mapping[str, Any],
        parse: Callable[[], ContentT],
        form: CacheForm[ContentT],
    ) -> ContentT:
        """Read a text file from its entry, or call `parse` and write an entry if that was slow.

        `options` are the options that affect the result of `parse`, as JSON.
        """
        begun, now = time.perf_counter(), time.time_ns()
        origin = _origin(path, options)
        if origin is None:
            return parse()
        key = json.dumps([origin["path"], origin["options"]], sort_keys=True).encode()
        entry = self.directory / (blake2b(key, digest_size=16).hexdigest() + SUFFIX)
        stored = _load(entry, origin, form)
        if stored is not None:
            self.report(f"{path}: read from the cache in {time.perf_counter() - begun:.2f} s")
            return stored
        content = parse()
        slow = time.perf_counter() - begun >= self.min_parse_s
        if slow and origin["mtime_ns"] < now - CLOCK_TICK_NS and _origin(path, options) == origin:
            self._store_entry(entry, origin, *form.pack(content))
        return content

    def _store_entry(self, entry: Path, origin: Origin, scalars: Any, arrays: Arrays) -> None:
        size = sum(array.nbytes for array in arrays.values())
        path = origin["path"]
        try:
            make_directory(self.directory)
            self._sweep()
            disk = shutil.disk_usage(self.directory)
            least = min(max(MIN_FREE_BYTES, int(disk.total * MIN_FREE_FRACTION)), MAX_FREE_BYTES)
            if disk.free - size < least:
                raise OSError(errno.ENOSPC, "the disk is nearly full")
            header = EntryHeader(origin, tuple(arrays), scalars)
            _write(entry, [as_json(header), *arrays.values()])
        except OSError as error:
            why = error.strerror or str(error)
            self.report(f"{path}: cannot write to the cache {self.directory}: {why}")
        else:
            self.report(f"{path}: written to the cache {self.directory} ({size / 1e6:.0f} MB)")

    def _sweep(self) -> None:
        """Remove outdated entries and unfinished entries of killed processes."""
        for entry in self.directory.glob(f"*{SUFFIX}"):
            with suppress(OSError):
                if _outdated(entry):
                    entry.unlink()
        for unfinished in self.directory.glob(f"*{TEMPORARY_SUFFIX}"):
            with suppress(OSError):
                if unfinished.stat().st_mtime < time.time() - ABANDONED_S:
                    unfinished.unlink()


def _origin(path: Path, options: Mapping[str, Any]) -> Origin | None:
    """The origin for the current state of a file; None for other paths, such as a pipe."""
    try:
        state = path.stat()
    except OSError:  # the reader will report what is wrong
        return None
    if not stat.S_ISREG(state.st_mode):
        return None
    return {
        "path": os.path.abspath(path),
        "options": json.loads(json.dumps(options)),  # as it is read from an entry
        "readers": _readers(),
        "size": state.st_size,
        "mtime_ns": state.st_mtime_ns,
        "ctime_ns": state.st_ctime_ns,  # cp -p and tar restore the mtime, but not the ctime
    }


@cache
def _readers() -> str:
    """A digest of the readers' source code: other versions may parse a file differently."""
    folder, digest = Path(__file__).parent, blake2b(digest_size=8)
    for source in sorted(folder.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def as_json(value: object) -> NDArray[np.uint8]:
    """The bytes of `value` as JSON."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _write(entry: Path, arrays: list[NDArray[Any]]) -> None:
    """Write an entry atomically, readable by this user only."""
    # mkstemp creates the file with mode 0600.
    descriptor, unfinished = tempfile.mkstemp(dir=entry.parent, suffix=TEMPORARY_SUFFIX)
    arrays = [np.ascontiguousarray(array) for array in arrays]
    checksums = np.array([_checksum(array) for array in arrays], np.uint32)
    try:
        with open(descriptor, "wb") as file:
            for array in (checksums, *arrays):
                npy.write_array(file, array, allow_pickle=False)
        os.replace(unfinished, entry)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished)
        raise


def _load(entry: Path, origin: Origin, form: CacheForm[ContentT]) -> ContentT | None:
    """Read an entry; None if it is damaged, not valid, or has a different origin."""
    try:
        with entry.open("rb") as file:
            stored = _stored(file)
            header = _header(stored)
            if header.origin != origin:
                return None
            budget.require(entry.stat().st_size, f"the rows of {origin['path']}", ADVICE)
            arrays = dict(zip(header.arrays, stored, strict=True))
        return form.unpack(header.scalars, arrays)
    except UsageError:  # not enough memory
        raise
    except Exception:  # whatever is wrong with the entry, the text has the content
        return None


def _stored(file: BufferedReader) -> Iterator[NDArray[Any]]:
    """Yield the header and the arrays of an entry; ValueError if one is damaged.

    The arrays are parts of one allocation: most pages of arrays of a few MB would be small ones.
    """
    header, *checksums = npy.read_array(file, allow_pickle=False)
    yield _checked(npy.read_array(file, allow_pickle=False), header)
    first = file.tell()
    memory = np.empty(os.fstat(file.fileno()).st_size - first, np.uint8)
    for checksum in checksums:
        npy.read_magic(file)
        shape, _, dtype = npy.read_array_header_1_0(file)
        # aligned, and behind the array before: the header of this one took more bytes
        start = (file.tell() - first) // npy.ARRAY_ALIGN * npy.ARRAY_ALIGN
        array: NDArray[Any] = np.ndarray(shape, dtype, memory.data, start)
        file.readinto(memory[start : start + array.nbytes].data)
        yield _checked(array, checksum)


def _checked(array: NDArray[Any], checksum: int) -> NDArray[Any]:
    if _checksum(array) != checksum:
        raise ValueError("a damaged array")
    return array


def _checksum(array: NDArray[Any]) -> int:
    return zlib.crc32(array.data, zlib.crc32(f"{array.dtype} {array.shape}".encode()))


def _header(stored: Iterator[NDArray[Any]]) -> EntryHeader:
    header: EntryHeader = convert(json.loads(next(stored).tobytes()), EntryHeader, "header")
    return header


def _outdated(entry: Path) -> bool:
    try:
        with entry.open("rb") as file:
            origin = _header(_stored(file)).origin
        return origin != _origin(Path(origin["path"]), origin["options"])
    except Exception:  # it is not valid
        return True
