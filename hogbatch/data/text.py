"""Text files as blocks of whole lines, parsed by several threads.

Every text format is read in two ways that give the same result. Blocks of usual lines go through a
compiled parser (`hogbatch.data.parse`), and a block with anything unusual in it goes line by line,
which also finds the exact place of an error. A file of a single block goes line by line at once:
that takes less time than to load the compiler.
"""

import codecs
import itertools
import os
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol, TypeVar

from hogbatch.errors import DataError

BLOCK_BYTES = 1 << 22
GZIP_BYTES = 1 << 20  # compressed
MOST_WAITING = 8  # blocks that wait for a thread to parse them
GZIP_FORMAT = 31  # zlib: the largest window, gzip header and checksum
FLOAT32_LIMIT = 2.0**128 - 2.0**103  # from here on, rounding to float32 gives infinity

Counts = tuple[int, ...]  # of rows, and of whatever else a format stores; the rows come first
Part = TypeVar("Part", covariant=True)
Room = TypeVar("Room")
Parsed = TypeVar("Parsed")


class Block(NamedTuple):
    """Whole lines of a file, each with its newline."""

    first_line: int  # its number in the file, from 1
    text: bytes


class Format(Protocol[Part, Room]):
    """How the lines of a file become arrays. `count` and `parse` are called by several threads."""

    def count(self, text: bytes) -> Counts:
        """Tell how much `text` holds at most; its newlines come first."""

    def reserve(self, counts: Counts) -> Room:
        """Make room for so much."""

    def parse(self, block: Block, room: Room, begin: Counts, end: Counts) -> Part:
        """Read a block into the room from `begin` to `end`. DataError names a mistake's place."""

    def parse_lines(self, block: Block) -> Part:
        """Read a block line by line, into room of its own."""


class Span(NamedTuple):
    """Where whole lines lie in a file that can be read at any place."""

    file: BinaryIO
    start: int
    stop: int

    def read(self) -> bytes:
        """The lines, each with its newline."""
        text = os.pread(self.file.fileno(), self.stop - self.start, self.start)
        if len(text) < self.stop - self.start:
            raise DataError(f"{self.file.name} changed while it was read")
        return text if text.endswith(b"\n") else text + b"\n"


class TextFile:
    """A text file (plain or .gz) whose first block has been read.

    DataError when the file is missing, a directory, unreadable or corrupt.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream = blocks(path)
        self.first = next(self._stream, Block(1, b""))

    def parse(
        self, rest: Block, layout: Format[Parsed, Room], threads: int | None
    ) -> tuple[list[Parsed], Room | None]:
        """Read all lines after the header: parts in order, and the room they share, if they do.

        `rest` is what the header leaves of the first block. `threads` are all that this process
        may use when it is None.
        """
        second = next(self._stream, None)
        if second is None:
            return [layout.parse_lines(rest)], None
        with ThreadPoolExecutor(threads or len(os.sched_getaffinity(0))) as pool:
            if _compressed(self._path) or not self._path.is_file():
                stream = itertools.chain((rest, second), self._stream)
                return _parse_stream(pool, stream, layout), None
            with _reading(self._path), self._path.open("rb") as file:
                start = len(_mark(file)) + len(self.first.text) - len(rest.text)
                return _parse_spans(pool, rest.first_line, _cut(file, start), layout)


def _parse_stream(
    pool: ThreadPoolExecutor, stream: Iterator[Block], layout: Format[Parsed, Room]
) -> list[Parsed]:
    """Parse blocks while the next ones are being decompressed."""

    def parse(block: Block) -> Parsed:
        counts = layout.count(block.text)
        return layout.parse(block, layout.reserve(counts), (0,) * len(counts), counts)

    waiting: deque[Future[Parsed]] = deque()
    parts = []
    for block in stream:
        waiting.append(pool.submit(parse, block))
        if len(waiting) > MOST_WAITING:
            parts.append(waiting.popleft().result())
    return parts + [part.result() for part in waiting]


def _parse_spans(
    pool: ThreadPoolExecutor, line: int, spans: Sequence[Span], layout: Format[Parsed, Room]
) -> tuple[list[Parsed], Room]:
    """Parse spans into room for the whole file, each at its place."""
    counts = list(pool.map(lambda span: layout.count(span.read()), spans))
    ends = list(itertools.accumulate(counts, _add))
    begins = [(0,) * len(ends[0]), *ends[:-1]]
    room = layout.reserve(ends[-1])

    def parse(span: Span, begin: Counts, end: Counts) -> Parsed:
        return layout.parse(Block(line + begin[0], span.read()), room, begin, end)

    return list(pool.map(parse, spans, begins, ends)), room


def _add(one: Counts, other: Counts) -> Counts:
    return tuple(map(sum, zip(one, other, strict=True)))


def _cut(file: BinaryIO, start: int) -> list[Span]:
    """Cut the rest of a file at line ends, into spans of some 4 MiB."""
    size = os.fstat(file.fileno()).st_size
    spans = []
    while start < size:
        file.seek(start + BLOCK_BYTES - 1)
        file.readline()
        stop = min(file.tell(), size)
        spans.append(Span(file, start, stop))
        start = stop
    return spans


def line_at(path: Path, line: int) -> bytes:
    """Read one line of a file again, without its end."""
    for block in blocks(path):
        lines = block.text.split(b"\n")[:-1]
        if line < block.first_line + len(lines):
            return lines[line - block.first_line]
    raise DataError(f"{path} changed while it was read")


def blocks(path: Path) -> Iterator[Block]:
    """Cut a text file (plain or .gz) at line ends, into blocks of some 4 MiB.

    Raises DataError when the file is missing, a directory, unreadable or corrupt.
    """
    line, pending = 1, bytearray()
    with _reading(path), path.open("rb") as file:
        for chunk in _chunks(path, file):
            end = chunk.rfind(b"\n") + 1
            if end:
                text = b"".join((pending, chunk[:end]))
                yield Block(line, text)
                line += text.count(b"\n")
                pending.clear()
            pending += chunk[end:]
    if pending:
        yield Block(line, bytes(pending + b"\n"))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Tell what is wrong with a file that cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except EOFError:
        raise DataError(f"{path}: the gzip data ends early; is the file complete?") from None
    except zlib.error as error:
        raise DataError(f"{path}: the gzip data is not intact: {error}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None


def _chunks(path: Path, file: BinaryIO) -> Iterator[bytes]:
    chunks = _inflated(file) if _compressed(path) else iter(lambda: file.read(BLOCK_BYTES), b"")
    yield next(chunks, b"").removeprefix(codecs.BOM_UTF8)
    yield from chunks


def _compressed(path: Path) -> bool:
    return path.suffix == ".gz"


def _mark(file: BinaryIO) -> bytes:
    """The byte order mark that a file begins with, if any."""
    mark = codecs.BOM_UTF8
    return mark if os.pread(file.fileno(), len(mark), 0) == mark else b""


def _inflated(file: BinaryIO) -> Iterator[bytes]:
    """Decompress a file of gzip members, with as many zeros between them as there may be."""
    inflate, pending = zlib.decompressobj(GZIP_FORMAT), b""
    while pending := pending or file.read(GZIP_BYTES):
        if inflate.eof:
            pending = pending.lstrip(b"\0")
            inflate = zlib.decompressobj(GZIP_FORMAT) if pending else inflate
        else:
            yield inflate.decompress(pending, BLOCK_BYTES)
            pending = inflate.unconsumed_tail or inflate.unused_data
    yield inflate.flush()
    if not inflate.eof:
        raise EOFError


class Misplaced(ValueError):
    """Something is wrong at a place in a line."""

    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.column = at + 1


def number(token: str, at: int = 0) -> float:
    """Parse the number at `at` of a line.

    Misplaced unless it is written in digits and fits into float32.
    """
    try:
        value = float(token)
    except ValueError:
        raise Misplaced(at, f"expected a number; got {quoted(token)}") from None
    if "_" in token or not token.isascii():  # 1_000 and foreign digits, which Python takes
        raise Misplaced(at, f"expected a number; got {quoted(token)}")
    if not abs(value) < FLOAT32_LIMIT:
        raise Misplaced(at, f"expected a finite number within float32; got {quoted(token)}")
    return value


def quoted(token: str) -> str:
    """Quote a piece of a file for a message, shortened when it is long."""
    return repr(token if len(token) <= 40 else token[:37] + "...")
