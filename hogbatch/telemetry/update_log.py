"""The record of a run's updates: the worker, the rows and the times of each of them.

With `--record`, every worker and the coordinator write one file each into the folder `updates` of
the run directory. A file has

    8 bytes    MAGIC
    4 bytes    the version of the format, and
    4 bytes    the length of the header in bytes, both little-endian
    header     JSON: the fields of LogHeader, and `fields`, the layout of a record
    records    of RECORD.itemsize bytes each, little-endian, in the order in which they were written

Times are CLOCK_MONOTONIC in nanoseconds, which all processes of a server share. A killed process
leaves complete records, and at most one incomplete record at the end.
"""

import logging
import os
import struct
import threading
import time
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from hogbatch.errors import DataError, UsageError
from hogbatch.version import version

log = logging.getLogger(__name__)

FOLDER: Final = "updates"  # in the run directory
SUFFIX: Final = ".updates"
COORDINATOR: Final = "coordinator"
MAGIC: Final = b"hogbupd\n"
VERSION: Final = 1
MAX_HEADER: Final = 1 << 16  # bytes
RECORD: Final = np.dtype(
    [
        ("begin", "<i8"),  # nanoseconds
        ("end", "<i8"),
        ("start", "<i8"),  # first row, as a position in the order of the epoch
        ("learning_rate", "<f8"),
        ("weight", "<f4"),  # of a merge, after damping
        ("rows", "<u4"),
        ("batch_size", "<u4"),
        ("epoch", "<u4"),
        ("rollbacks", "<u4"),  # of the model before this, as far as the worker knew
        ("staleness", "<u4"),  # of a merge
        ("number", "<u4"),  # see Kind
        ("kind", "<u2"),
        ("thread", "<u2"),
    ]
)
PREFIX: Final = struct.Struct("<8sII")
TRUNCATED: Final = "this record of updates is truncated in its header"
Records = NDArray[Any]  # [N] of RECORD

now = time.monotonic_ns  # the clock of all records


class Kind(IntEnum):
    """What a record describes; the first event named happened at `begin`, the last one at `end`."""

    # of a CPU worker
    UPDATE = 1  # a batch of `thread`: began to read the model, has written it. number: the lease
    JOIN = 2  # `thread`, or a replica that was cleared, took over the slots in shared memory.
    # number: 1 for a replica that exchanges only the touched rows of a sparse first layer
    BUILD = 3  # hash tables: outputs were read, threads use the tables
    # of a GPU worker; its intervals have rows, batch size, learning rate, and number: the lease
    PULL = 4  # the replica was set to the shared model, for this interval
    TAKE = 5  # after this interval, the replica applied what was fetched last; its change was taken
    MERGE = 6  # the change of this interval was added to the shared model
    FETCH = 7  # the shared model was read for a later TAKE
    # of the coordinator
    SHUFFLE = 16  # the order of `epoch` was written; number: quarantined rows, which are last
    SNAPSHOT = 17  # the model was copied; number: 1 if the copy is kept to roll back to
    ROLL_BACK = 18  # the model was replaced by the last snapshot kept, or by the initial one
    EVALUATION = 19  # the model was evaluated; number: from 0
    SAMPLE = 20  # the moving mean took a sample of the model


class LogHeader(msgspec.Struct, frozen=True):
    """Who has written a file."""

    hogbatch: str  # version
    run: str
    name: str  # of the worker, or COORDINATOR
    worker: int  # its number; -1: coordinator
    device: str  # "cpu", "gpu", or empty for the coordinator
    threads: int  # that compute batches of their own: teams of threads count as one
    pid: int
    identity: dict[str, str | int] = {}  # of the run, see run.resume; only the coordinator's


class _StoredHeader(LogHeader, frozen=True):
    fields: tuple[tuple[str, str], ...] = ()


class UpdateFile(NamedTuple):
    """The contents of one file."""

    path: Path
    header: LogHeader
    records: Records


def record(kind: Kind, begin: int, end: int, **fields: float) -> Records:
    """Return an array of one record; fields that are not given are 0."""
    made = np.zeros(1, RECORD)
    made["kind"], made["begin"], made["end"] = kind, begin, end
    for name, value in fields.items():
        made[name] = value
    return made


class UpdateLog:
    """A file to which records are appended; several threads may do so."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Use :meth:`create`."""
        self._path = path
        self._descriptor: int | None = descriptor
        self._lock = threading.Lock()

    @classmethod
    def create(cls, folder: Path, header: LogHeader) -> Self:
        """Create a file for the writer that `header` describes; a restarted worker gets a new one.

        UsageError if that is impossible.
        """
        try:
            folder.mkdir(0o700, exist_ok=True)
            path, descriptor = _create(folder, header.name)
        except OSError as error:
            raise UsageError(f"cannot record updates in {folder}: {error.strerror}") from None
        made = cls(path, descriptor)
        made._write(_encoded(header))
        return made

    def append(self, records: Records) -> None:
        """Append records[N]; after an error, which is logged once, no more are written."""
        self._write(records.tobytes())

    def close(self) -> None:
        """Close the file; no more records are written."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                with suppress(OSError):
                    os.close(descriptor)

    def _write(self, data: bytes) -> None:
        failure = None
        with self._lock:
            if self._descriptor is None:
                return
            try:
                while data:  # a signal or a full disk may end a write early
                    data = data[os.write(self._descriptor, data) :]
            except OSError as error:
                failure = error.strerror
        if failure is not None:
            log.warning("%s: the recording of updates has stopped: %s", self._path, failure)
            self.close()


def _create(folder: Path, name: str) -> tuple[Path, int]:
    """Create the first file for `name` that does not exist; return its descriptor, too."""
    generation = 0
    while True:
        path = folder / f"{name}{f'.{generation}' if generation else ''}{SUFFIX}"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            return path, os.open(path, flags, 0o600)
        except FileExistsError:
            generation += 1


def _encoded(header: LogHeader) -> bytes:
    layout = tuple((name, RECORD[name].str) for name in RECORD.names or ())
    text = msgspec.json.encode(_StoredHeader(**msgspec.structs.asdict(header), fields=layout))
    return PREFIX.pack(MAGIC, VERSION, len(text)) + text


def read_folder(run_dir: Path) -> list[UpdateFile]:
    """Return the files of a recorded run, that of the coordinator first.

    Those of :func:`files_without_header` are left out. UsageError if there is no record, DataError
    if a file is not one of this version's records.
    """
    without = files_without_header(run_dir)
    files = [read_file(path) for path in _paths(run_dir) if path not in without]
    coordinators = [file for file in files if file.header.name == COORDINATOR]
    if not coordinators:
        raise UsageError(
            f"{run_dir} has no record of its updates; only runs with --record can be replayed"
        )
    if len(coordinators) > 1 or len({file.header.run for file in files}) > 1:
        raise DataError(f"{run_dir / FOLDER} has records of more than one run")
    return [*coordinators, *(file for file in files if file.header.name != COORDINATOR)]


def files_without_header(run_dir: Path) -> list[Path]:
    """Return the files of workers that were killed before they had written a whole header."""
    return [
        path
        for path in _paths(run_dir)
        if path.name.partition(".")[0] != COORDINATOR
        and _problem_of_prefix(_content(path, PREFIX.size + MAX_HEADER)) == TRUNCATED
    ]


def _paths(run_dir: Path) -> list[Path]:
    return sorted((run_dir / FOLDER).glob(f"*{SUFFIX}"))


def read_file(path: Path) -> UpdateFile:
    """Read one file, without an incomplete record at its end. DataError if it is not valid."""
    content = _content(path)
    if problem := _problem_of_prefix(content):
        raise DataError(f"{path}: {problem}")
    length = PREFIX.unpack_from(content)[2]
    try:
        header = msgspec.json.decode(content[PREFIX.size :][:length], type=_StoredHeader)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: the header of this record of updates is damaged: {error}"
        ) from None
    if header.hogbatch != version():
        raise DataError(
            f"{path}: this run was recorded by hogbatch {header.hogbatch}, but this is "
            f"{version()}; replay it with the version that recorded it"
        )
    if [*header.fields] != [(name, RECORD[name].str) for name in RECORD.names or ()]:
        raise DataError(f"{path}: the records have other fields than those of this version")
    start = PREFIX.size + length
    records = np.frombuffer(content, RECORD, (len(content) - start) // RECORD.itemsize, start)
    _check(path, records)
    return UpdateFile(path, header, records)


def _content(path: Path, size: int = -1) -> bytes:
    """The first `size` bytes of a file, or all of them."""
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise DataError(f"{path}: cannot read the record of updates: {error.strerror}") from None


def _problem_of_prefix(content: bytes) -> str:
    """Why `content` does not begin as a file of this version; empty if it does."""
    if content[: len(MAGIC)] != MAGIC[: len(content)]:
        return "this is not a record of updates"
    if len(content) < PREFIX.size:
        return TRUNCATED
    _, number, length = PREFIX.unpack_from(content)
    if number != VERSION:
        return f"this record of updates has format {number}; this version reads format {VERSION}"
    if length > MAX_HEADER:
        return "the header of this record of updates is damaged"
    return TRUNCATED if len(content) < PREFIX.size + length else ""


def _check(path: Path, records: Records) -> None:
    """DataError for the first record with values that no writer writes."""
    valid = np.isin(records["kind"], [*Kind])
    valid &= (records["begin"] >= 0) & (records["end"] >= records["begin"])
    takes_time = np.isin(records["kind"], [Kind.UPDATE, Kind.BUILD])
    valid &= ~takes_time | (records["end"] > records["begin"])
    valid &= records["start"] >= 0
    valid &= np.isfinite(records["learning_rate"]) & np.isfinite(records["weight"])
    trains = np.isin(records["kind"], [Kind.UPDATE, Kind.PULL, Kind.TAKE, Kind.MERGE])
    valid &= ~trains | ((records["rows"] > 0) & (records["batch_size"] > 0))
    if not valid.all():
        number = int(np.flatnonzero(~valid)[0])
        raise DataError(f"{path}: record {number} of {len(records)} is damaged")
