"""Text files as blocks of whole lines, parsed by several threads.

Every text format is read in two ways that give the same result. Blocks of usual lines go through a
compiled parser (`hogbatch.data.parse`). A block with anything unusual in it is halved until that is
in a small piece, which goes line by line; that also finds the exact place of an error. A file of a
single block goes line by line at once: that takes less time than to load the compiler.

A file is read into memory, never mapped. One that changes meanwhile is a DataError.
"""

import codecs
import itertools
import os
import stat
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Generic, NamedTuple, Protocol, TypeVar

from hogbatch.data.raw import DEFAULTS, Options
from hogbatch.data.skipped import Misplaced, Skipped
from hogbatch.errors import DataError

BLOCK_BYTES = 1 << 22
PIECE_BYTES = 1 << 15  # of a block with something unusual, that go line by line at once
GZIP_BYTES = 1 << 20  # compressed
MOST_WAITING = 8  # blocks that wait for a thread to parse them
GZIP_FORMAT = 31  # zlib: the largest window, gzip header and checksum
FLOAT32_LIMIT = 2.0**128 - 2.0**103  # from here on, rounding to float32 gives infinity

Counts = tuple[int, ...]  # of rows, and of whatever else a format stores; the rows come first
Room = TypeVar("Room")


class Block(NamedTuple):
    """Whole lines of a file, each with its newline."""

    first_line: int  # its number in the file, from 1
    text: bytes


class Part(Protocol):
    """What was read of a block."""

    @property
    def size(self) -> Counts:
        """How much there is."""

    @property
    def skipped(self) -> Skipped:
        """Lines that are not as they should be; they are not in the part."""


Read = TypeVar("Read", bound=Part, covariant=True)


class Format(Protocol[Read, Room]):
    """How the lines of a file become arrays. All but `reserve` is called by several threads."""

    def count(self, text: bytes) -> Counts:
        """Tell how much `text` holds at most; its newlines come first."""

    def reserve(self, counts: Counts) -> Room:
        """Make room for so much."""

    def parse(self, block: Block, room: Room, begin: Counts, end: Counts) -> Read | None:
        """Read a block into the room from `begin` to `end`; None if anything is unusual."""

    def parse_lines(self, block: Block) -> Read:
        """Read a block line by line, into room of its own, without lines that have a mistake."""


class Parsed(NamedTuple, Generic[Read, Room]):
    """All lines of a file after its header."""

    parts: list[Read]  # in order
    room: Room | None  # that they share, if they do
    skipped: Skipped


class Span(NamedTuple):
    """Where whole lines lie in a file that can be read at any place."""

    file: BinaryIO
    start: int
    stop: int

    def read(self) -> bytes:
        """The lines, each with its newline."""
        text = os.pread(self.file.fileno(), self.stop - self.start, self.start)
        if len(text) < self.stop - self.start:
            raise changed(self.file.name)
        return text if text.endswith(b"\n") else text + b"\n"


class TextFile:
    """A text file (plain or .gz) whose first block has been read.

    DataError when the file is missing, a directory, unreadable or corrupt.
    """

    def __init__(self, path: Path, options: Options = DEFAULTS) -> None:
        self._path = path
        self._options = options
        self._state = _state(path)
        self._stream: Iterator[Block] = blocks(path)
        self.first = next(self._stream, Block(1, b""))

    def ahead(self, lines: int) -> bytes:
        """The first `lines` lines and maybe more, or all there are; `parse` reads them as well."""
        blocks, count = [self.first], self.first.text.count(b"\n")
        while count < lines and (block := next(self._stream, None)):
            blocks.append(block)
            count += block.text.count(b"\n")
        self._stream = itertools.chain(blocks[1:], self._stream)
        return b"".join(block.text for block in blocks)

    def parse(self, rest: Block, layout: Format[Read, Room]) -> Parsed[Read, Room]:
        """Read all lines after the header; `rest` is what that leaves of the first block.

        DataError for more bad lines than the options allow, or if the file has changed meanwhile.
        """
        parser = Parser(self._path, layout, strict=not self._options.bad_lines)
        try:
            parsed = self._parse(rest, parser)
        except DataError:
            self._check_state()  # then whatever else is wrong comes of that
            raise
        self._check_state()
        parts, room = parsed
        skipped = Skipped.of_parts(part.skipped for part in parts)
        rows = sum(part.size[0] for part in parts)
        skipped.check(self._path, rows, self._options.bad_lines)
        return Parsed(parts, room, skipped)

    def _check_state(self) -> None:
        if _state(self._path) != self._state:
            raise changed(self._path) from None

    def _parse(self, rest: Block, parser: "Parser[Read, Room]") -> tuple[list[Read], Room | None]:
        second = next(self._stream, None)
        if second is None:
            return [parser.by_line(rest)], None
        with ThreadPoolExecutor(self._options.threads or len(os.sched_getaffinity(0))) as pool:
            if _compressed(self._path) or not self._path.is_file():
                return parser.stream(pool, itertools.chain((rest, second), self._stream)), None
            with _reading(self._path), self._path.open("rb") as file:
                start = len(_mark(file)) + len(self.first.text) - len(rest.text)
                return parser.spans(pool, rest.first_line, _cut(file, start))


@dataclass(frozen=True, slots=True)
class Parser(Generic[Read, Room]):
    """A format at work on a file."""

    path: Path
    layout: Format[Read, Room]
    strict: bool  # the first mistake is a DataError

    def stream(self, pool: ThreadPoolExecutor, stream: Iterator[Block]) -> list[Read]:
        """Parse blocks while the next ones are being decompressed."""

        def parse(block: Block) -> list[Read]:
            counts = self.layout.count(block.text)
            return self.block(block, self.layout.reserve(counts), (0,) * len(counts), counts)

        waiting: deque[Future[list[Read]]] = deque()
        parts: list[Read] = []
        for block in stream:
            waiting.append(pool.submit(parse, block))
            if len(waiting) > MOST_WAITING:
                parts += waiting.popleft().result()
        return [*parts, *itertools.chain.from_iterable(future.result() for future in waiting)]

    def spans(
        self, pool: ThreadPoolExecutor, line: int, spans: Sequence[Span]
    ) -> tuple[list[Read], Room]:
        """Parse spans into room for the whole file, each at its place."""
        counts = list(pool.map(lambda span: self.layout.count(span.read()), spans))
        ends = list(itertools.accumulate(counts, _add))
        begins = [(0,) * len(ends[0]), *ends[:-1]]
        room = self.layout.reserve(ends[-1])

        def parse(span: Span, begin: Counts, end: Counts) -> list[Read]:
            return self.block(Block(line + begin[0], span.read()), room, begin, end)

        return list(itertools.chain.from_iterable(pool.map(parse, spans, begins, ends))), room

    def block(self, block: Block, room: Room, begin: Counts, end: Counts) -> list[Read]:
        """Parse a block into its place, but pieces with anything unusual line by line."""
        part = self.layout.parse(block, room, begin, end)
        if part is not None:
            return [part]
        text = block.text
        half = text.rfind(b"\n", 0, len(text) // 2) + 1
        if len(text) <= PIECE_BYTES or not half:
            part = self.by_line(block)
            if any(n > e - b for n, b, e in zip(part.size, begin, end, strict=True)):
                raise changed(self.path)  # since it was counted
            return [part]
        counts = self.layout.count(text[:half])
        middle = tuple(map(min, _add(begin, counts), end))
        rest = Block(block.first_line + counts[0], text[half:])
        first = self.block(Block(block.first_line, text[:half]), room, begin, middle)
        return first + self.block(rest, room, middle, end)

    def by_line(self, block: Block) -> Read:
        """Parse a block line by line."""
        part = self.layout.parse_lines(block)
        if self.strict:
            part.skipped.check(self.path, part.size[0], 0)
        return part


def changed(path: str | Path) -> DataError:
    """What is wrong with a file that somebody writes to."""
    return DataError(f"{path} changed while it was read; start again when nobody writes to it")


def _state(path: Path) -> tuple[int, ...] | None:
    """What changes with a file; None for what is no file, such as a pipe."""
    try:
        state = path.stat()
    except OSError:  # if it was never there, reading it will say so
        return None
    if not stat.S_ISREG(state.st_mode):
        return None
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


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


def lines_at(path: Path, lines: Iterable[int]) -> Iterator[bytes]:
    """Read some lines of a file again, by their ascending numbers, without their ends."""
    stream = blocks(path)
    block, contents = Block(1, b""), list[bytes]()
    for line in lines:
        while line >= block.first_line + len(contents):
            block = next(stream, Block(line, b""))
            contents = block.text.split(b"\n")[:-1]
            if not contents:
                raise changed(path)
        yield contents[line - block.first_line]


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
