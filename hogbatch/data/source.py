"""Data sources: a file, or a stream that is first copied into memory.

Readers open their file several times and read it at any position. Standard input, named pipes and
devices can be read only once, so they are copied into an anonymous file (memfd), which counts as
memory of this process and is freed with it.
"""

import os
import re
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

from hogbatch.data.progress import CountedFile, ReadProgress
from hogbatch.data.signatures import FIRST_BYTES, compression_of, is_archive, is_columnar, not_text
from hogbatch.errors import DataError
from hogbatch.machine import budget
from hogbatch.machine.budget import byte_size
from hogbatch.machine.printable import printable

ARRAYS: Final = "<arrays>"  # in place of a path: data that Python has given as arrays
STANDARD_INPUT: Final = ("-", "/dev/stdin")
TRANSIENT_PREFIXES: Final = ("/dev/", "/proc/")
STREAM_CHUNK_BYTES: Final = 1 << 20  # per read of a stream
BUFFER_BYTES: Final = 1 << 17  # of an open file; each call that fills it is counted in Python
MEMORY_STEP_BYTES: Final = 1 << 25  # copied between two checks of the available memory
MAX_LINE_BYTES: Final = 64_000_000  # a file with a longer line is probably not a text file


@dataclass(frozen=True, slots=True)
class Source:
    """A data file."""

    path: Path  # to open
    given_path: Path | None = None  # path given by the user, if different
    persistent: bool = True  # whether the path names the same file in the next run
    first_line: int = 1  # the number of its first line in messages: more for a piece of a file
    memory: object = field(default=None, compare=False)  # of a piece, freed with the last Source
    # of all reads; counts from `begin_reading` on
    progress: ReadProgress = field(default_factory=ReadProgress, compare=False)

    def __str__(self) -> str:
        return printable(str(self.given_path or self.path))

    @property
    def name(self) -> str:
        """The name of the file, which may determine the format."""
        return (self.given_path or self.path).name

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file; DataError if opening or reading fails."""
        with (
            reading(self),
            BufferedReader(CountedFile(self.path, self.progress), BUFFER_BYTES) as file,
        ):
            yield file

    def begin_reading(self) -> None:
        """Show in `progress` that the whole file is read from here on."""
        with reading(self):
            state = self.path.stat()
        self.progress.begin(str(self), state.st_size if stat.S_ISREG(state.st_mode) else None)


def is_standard_input(path: str | Path) -> bool:
    """Whether `path` names standard input."""
    return str(path) in STANDARD_INPUT


def shown(path: str | Path) -> str:
    """The name of `path` in messages."""
    if str(path) == ARRAYS:
        return "arrays"
    return "standard input" if is_standard_input(path) else printable(str(path))


def plain_name(path: str | Path) -> str:
    """A name for results of the data at `path`, such as "covtype" or "stdin"."""
    if is_standard_input(path) or os.path.abspath(path).startswith(TRANSIENT_PREFIXES):
        return "stdin" if is_standard_input(path) else "pipe"
    return re.sub(r"[^\w-]+", "-", Path(path).name.split(".")[0]).strip("-") or "run"


@contextmanager
def opened(path: str | Path, progress: ReadProgress | None = None) -> Iterator[Source]:
    """Open a file or stream for reading; the copy of a stream is closed at the end.

    DataError if it is missing, unreadable or not text, UsageError if it does not fit into memory.
    """
    progress = progress or ReadProgress()
    if is_standard_input(path):
        if sys.stdin is None or sys.stdin.closed:
            raise DataError("standard input is closed; expected data on it, or give a file name")
        standard_input = Source(Path("standard input"), progress=progress)
        with _copied(open(0, "rb", 0, closefd=False), standard_input) as source:
            yield source
        return
    persistent = not os.path.abspath(path).startswith(TRANSIENT_PREFIXES)
    source = Source(Path(path), persistent=persistent, progress=progress)
    with reading(source):
        mode = source.path.stat().st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # opening a directory raises the error
        yield source
        return
    with reading(source):
        stream = source.path.open("rb", 0)
    with stream, _copied(stream, source) as copied:
        yield copied


@contextmanager
def _copied(stream: BinaryIO, source: Source) -> Iterator[Source]:
    """Copy a stream into memory; `source` has its name."""
    with os.fdopen(os.memfd_create("hogbatch-data"), "wb", 0) as copy:
        source.progress.begin(str(source), None)
        with reading(source):
            _copy(stream, copy, source)
        path = Path(f"/proc/self/fd/{copy.fileno()}")
        yield replace(source, path=path, given_path=source.path, persistent=False)


def _copy(stream: BinaryIO, copy: BinaryIO, source: Source) -> None:
    """Copy a whole stream; fail early if it is not text or does not fit into memory."""
    start, binary, size, line, granted = b"", False, 0, 0, 0
    while (content := stream.read(STREAM_CHUNK_BYTES)) != b"":
        if content is None:  # no data yet, from a non-blocking pipe
            select.select([stream], [], [])
            continue
        if size >= granted:
            granted += MEMORY_STEP_BYTES
            so_far = f", after {byte_size(size)}" if size else ""
            budget.require(
                2 * MEMORY_STEP_BYTES, f"{source}{so_far}", "save it as a file, or use fewer rows"
            )
        if len(start) < FIRST_BYTES:
            start += content[: FIRST_BYTES - len(start)]
            binary = bool(compression_of(start) or is_archive(start) or is_columnar(start))
            if len(start) == FIRST_BYTES and not binary and (what := not_text(start)):
                raise not_data(source, what)
        size += len(content)
        source.progress.add(len(content))
        line = len(content) - content.rfind(b"\n") if b"\n" in content else line + len(content)
        if line > MAX_LINE_BYTES and not binary and b"\r" not in start:
            raise too_long(source)
        view = memoryview(content)
        while view:
            view = view[copy.write(view) :]


def files_in(folder: Path) -> list[Path]:
    """All files in a folder, in order, except those whose name, or folder, begins with . or _."""
    return sorted(
        each
        for each in folder.rglob("*")
        if each.is_file() and all(part[0] not in "._" for part in each.relative_to(folder).parts)
    )


def not_data(source: Source, what: str) -> DataError:
    """The error for an unsupported file; `what` is its type and advice for the user."""
    return DataError(f"{source}: expected text or an .npz archive; got {what}")


def too_long(source: Source, line: int | None = None, limit: int | None = None) -> DataError:
    """The error for a line with more than `limit` bytes (None: MAX_LINE_BYTES)."""
    location = f"{source}:{line}" if line else str(source)
    most = byte_size(limit or MAX_LINE_BYTES)
    return DataError(
        f"{location}: expected lines of up to {most}; got a longer line: is this a text file?"
    )


@contextmanager
def reading(source: Source) -> Iterator[None]:
    """Convert file system errors to DataError."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"no such file: {source}") from None
    except OSError as error:
        raise DataError(f"cannot read {source}: {error.strerror or error}") from None
