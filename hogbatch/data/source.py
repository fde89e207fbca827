"""Where data comes from: a file, or a stream that is first copied into memory.

A reader opens its file several times and at any place. Standard input, a named pipe and a device
can be read once, so they are copied into an anonymous file (memfd), which counts as memory of this
process and is gone with it.
"""

import os
import re
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from hogbatch.data.signatures import FIRST_BYTES, is_archive, not_text, packing
from hogbatch.errors import DataError
from hogbatch.machine import budget
from hogbatch.machine.budget import byte_size
from hogbatch.machine.printable import printable

STANDARD_INPUT: Final = ("-", "/dev/stdin")
FLEETING: Final = ("/dev/", "/proc/")
STREAM_BYTES: Final = 1 << 20  # that are read of a stream at once
STEP_BYTES: Final = 1 << 25  # of memory between two checks that it is there
LONGEST_LINE: Final = 64_000_000  # bytes; a text file with a longer line hardly is one


@dataclass(frozen=True, slots=True)
class Source:
    """A file of data."""

    path: Path  # to open
    given: Path | None = None  # by the user, if that is another
    lasting: bool = True  # the path means the same file in the next run

    def __str__(self) -> str:
        return printable(str(self.given or self.path))

    @property
    def name(self) -> str:
        """The name of the file, which may tell the format."""
        return (self.given or self.path).name

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the file; DataError if that, or reading it, fails."""
        with reading(self), self.path.open("rb") as file:
            yield file


def is_standard_input(path: str | Path) -> bool:
    """Whether this is how standard input is named."""
    return str(path) in STANDARD_INPUT


def shown(path: str | Path) -> str:
    """How `path` is named in messages."""
    return "standard input" if is_standard_input(path) else printable(str(path))


def plain_name(path: str | Path) -> str:
    """A name for what is made of the data at `path`: "covtype", "stdin"."""
    if is_standard_input(path) or os.path.abspath(path).startswith(FLEETING):
        return "stdin" if is_standard_input(path) else "pipe"
    return re.sub(r"[^\w-]+", "-", Path(path).name.split(".")[0]).strip("-") or "run"


@contextmanager
def opened(path: str | Path) -> Iterator[Source]:
    """Make a file or stream ready to be read; what a stream was copied into is closed at the end.

    DataError if it is missing, unreadable or no text, UsageError if it does not fit into memory.
    """
    if is_standard_input(path):
        if sys.stdin is None or sys.stdin.closed:
            raise DataError("standard input is closed; expected data there, or the name of a file")
        with _copied(open(0, "rb", 0, closefd=False), Source(Path("standard input"))) as source:
            yield source
        return
    lasting = not os.path.abspath(path).startswith(FLEETING)
    source = Source(Path(path), lasting=lasting)
    with reading(source):
        mode = source.path.stat().st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # opening a directory says what is wrong
        yield source
        return
    with reading(source):
        stream = source.path.open("rb", 0)
    with stream, _copied(stream, source) as copied:
        yield copied


@contextmanager
def _copied(stream: BinaryIO, source: Source) -> Iterator[Source]:
    """Copy a stream into memory; `source` says how it is named."""
    with os.fdopen(os.memfd_create("hogbatch-data"), "wb", 0) as copy:
        with reading(source):
            _copy(stream, copy, source)
        yield Source(Path(f"/proc/self/fd/{copy.fileno()}"), source.path, lasting=False)


def _copy(stream: BinaryIO, copy: BinaryIO, source: Source) -> None:
    """Copy all of a stream, as long as it may be text and fits into memory."""
    start, size, line, granted = b"", 0, 0, 0
    while (content := stream.read(STREAM_BYTES)) != b"":
        if content is None:  # nothing yet, from a pipe that does not block
            select.select([stream], [], [])
            continue
        if size >= granted:
            granted += STEP_BYTES
            so_far = f", after {byte_size(size)}" if size else ""
            budget.require(
                2 * STEP_BYTES, f"{source}{so_far}", "save it as a file, or use fewer rows"
            )
        if len(start) < FIRST_BYTES:
            start += content[: FIRST_BYTES - len(start)]
            if len(start) == FIRST_BYTES:
                expect_text(start, source)
        size += len(content)
        line = len(content) - content.rfind(b"\n") if b"\n" in content else line + len(content)
        if line > LONGEST_LINE and not packing(start) and b"\r" not in start:
            raise too_long(source)
        view = memoryview(content)
        while view:
            view = view[copy.write(view) :]


def expect_text(start: bytes, source: Source) -> None:
    """DataError if a file that starts so is neither text nor compressed nor a zip archive."""
    what = None if packing(start) or is_archive(start) else not_text(start)
    if what:
        raise not_data(source, what)


def not_data(source: Source, what: str) -> DataError:
    """The error for a file that is something else, which `what` names, with what to do."""
    return DataError(f"{source}: expected text or an .npz archive; got {what}")


def too_long(source: Source, line: int | None = None) -> DataError:
    """The error for a line without an end."""
    place = f"{source}:{line}" if line else str(source)
    return DataError(
        f"{place}: expected lines of up to {byte_size(LONGEST_LINE)}; got a longer one: is this a "
        "text file?"
    )


@contextmanager
def reading(source: Source) -> Iterator[None]:
    """Turn errors of the file system into DataErrors."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"no such file: {source}") from None
    except OSError as error:
        raise DataError(f"cannot read {source}: {error.strerror or error}") from None
