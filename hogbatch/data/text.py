"""Text files as blocks of whole lines, parsed by several threads.

Every text format is read in two ways that give the same result. Blocks of usual lines go through a
compiled parser (`hogbatch.data.parse`). A block with anything unusual in it is halved until that is
in a small piece, which goes line by line; that also finds the exact place of an error. A file of a
single block goes line by line at once: that takes less time than to load the compiler.

A file is read into memory, never mapped. One that changes meanwhile is a DataError. Memory that is
not there is a UsageError before it is taken.
"""

import itertools
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO, Generic, NamedTuple, Protocol, TypeVar

from hogbatch.data.raw import DEFAULTS, Options
from hogbatch.data.signatures import FIRST_BYTES
from hogbatch.data.skipped import Misplaced, Skipped
from hogbatch.data.source import LONGEST_LINE, Source, too_long
from hogbatch.data.unpack import unpack
from hogbatch.errors import DataError
from hogbatch.machine import budget
from hogbatch.machine.printable import quoted

BLOCK_BYTES = 1 << 22
PIECE_BYTES = 1 << 15  # of a block with something unusual, that go line by line at once
MAX_WAITING = 8  # blocks that wait for a thread to parse them
LONG_BYTES = 1 << 20  # of text line by line, whose Python objects are worth a look at the memory,
OBJECT_BYTES = 40  # for each of its bytes: "1," becomes a str, a float and their places in lists
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

    def byte_size(self, counts: Counts) -> int:
        """Bytes of the room for so much."""

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
    source: Source
    start: int
    stop: int

    def read(self) -> bytes:
        """The lines, each with its newline."""
        text = os.pread(self.file.fileno(), self.stop - self.start, self.start)
        if len(text) < self.stop - self.start:
            raise changed(self.source)
        return text if text.endswith(b"\n") else text + b"\n"


class TextFile:
    """A text file, compressed or not, whose first block has been read.

    DataError when the file is missing, a directory, unreadable, corrupt or no text.
    """

    def __init__(self, source: Source, options: Options = DEFAULTS) -> None:
        self._source = source
        self._options = options
        self._state = _state(source)
        self._stream: Iterator[Block] = blocks(source)
        self.first = next(self._stream, Block(1, b""))
        line = self.first.text.find(b"\n")
        _expect_objects(max(line, 0), source)

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
        parser = Parser(self._source, layout, strict=not self._options.bad_lines)
        try:
            parsed = self._parse(rest, parser)
        except DataError:
            self._check_state()  # then whatever else is wrong comes of that
            raise
        self._check_state()
        parts, room = parsed
        skipped = Skipped.of_parts(part.skipped for part in parts)
        rows = sum(part.size[0] for part in parts)
        skipped.check(self._source, rows, self._options.bad_lines)
        return Parsed(parts, room, skipped)

    def _check_state(self) -> None:
        if _state(self._source) != self._state:
            raise changed(self._source) from None

    def _parse(self, rest: Block, parser: "Parser[Read, Room]") -> tuple[list[Read], Room | None]:
        second = next(self._stream, None)
        if second is None:
            return [parser.by_line(rest)], None
        from hogbatch.data.parse import decimal  # noqa: F401 - now: the compiler takes memory, too

        with ThreadPoolExecutor(self._options.threads or len(os.sched_getaffinity(0))) as pool:
            with self._source.open() as file:
                text = unpack(file, self._source, FIRST_BYTES)
                if text.plain:
                    start = text.mark + len(self.first.text) - len(rest.text)
                    spans = _cut(file, start, self._source)
                    return parser.spans(pool, rest.first_line, spans)
            return parser.stream(pool, itertools.chain((rest, second), self._stream)), None


@dataclass(frozen=True, slots=True)
class Parser(Generic[Read, Room]):
    """A format at work on a file."""

    source: Source
    layout: Format[Read, Room]
    strict: bool  # the first mistake is a DataError

    def stream(self, pool: ThreadPoolExecutor, stream: Iterator[Block]) -> list[Read]:
        """Parse blocks while the next ones are being decompressed.

        How much there will be is not known, so before each block there must be memory for the
        blocks that wait and for a copy of all rows so far, which are joined in the end.
        """

        def parse(block: Block) -> list[Read]:
            counts = self.layout.count(block.text)
            room = self._room(counts, len(waiting) * self.layout.byte_size(counts) + parsed)
            return self.block(block, room, (0,) * len(counts), counts)

        waiting: deque[Future[list[Read]]] = deque()
        parts: list[Read] = []
        parsed = 0  # bytes
        for block in stream:
            waiting.append(pool.submit(parse, block))
            if len(waiting) > MAX_WAITING:
                parts += (more := waiting.popleft().result())
                parsed += sum(self.layout.byte_size(part.size) for part in more)
        parts += itertools.chain.from_iterable(future.result() for future in waiting)
        self._expect(sum(self.layout.byte_size(part.size) for part in parts))
        return parts

    def spans(
        self, pool: ThreadPoolExecutor, line: int, spans: Sequence[Span]
    ) -> tuple[list[Read], Room]:
        """Parse spans into room for the whole file, each at its place."""
        counts = list(pool.map(lambda span: self.layout.count(span.read()), spans))
        ends = list(itertools.accumulate(counts, _add))
        begins = [(0,) * len(ends[0]), *ends[:-1]]
        room = self._room(ends[-1], self.layout.byte_size(ends[-1]))

        def parse(span: Span, begin: Counts, end: Counts) -> list[Read]:
            return self.block(Block(line + begin[0], span.read()), room, begin, end)

        return list(itertools.chain.from_iterable(pool.map(parse, spans, begins, ends))), room

    def _room(self, counts: Counts, needed: int) -> Room:
        """Make room if there are `needed` bytes of memory."""
        self._expect(needed)
        try:
            return self.layout.reserve(counts)
        except MemoryError:
            raise budget.insufficient_memory(needed, *_purpose(self.source)) from None

    def _expect(self, needed: int) -> None:
        budget.require(needed, *_purpose(self.source))

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
                raise changed(self.source)  # since it was counted
            return [part]
        counts = self.layout.count(text[:half])
        middle = tuple(map(min, _add(begin, counts), end))
        rest = Block(block.first_line + counts[0], text[half:])
        first = self.block(Block(block.first_line, text[:half]), room, begin, middle)
        return first + self.block(rest, room, middle, end)

    def by_line(self, block: Block) -> Read:
        """Parse a block line by line."""
        _expect_objects(len(block.text), self.source)
        part = self.layout.parse_lines(block)
        if self.strict:
            part.skipped.check(self.source, part.size[0], 0)
        return part


def changed(source: Source) -> DataError:
    """The error for a file that is written to while it is read."""
    return DataError(f"{source} changed while it was read; start again when nobody writes to it")


def _purpose(source: Source) -> tuple[str, str]:
    """What memory is for, and how to get by with less."""
    return f"the rows of {source}", "use fewer rows, or a machine with more memory"


def _expect_objects(size: int, source: Source) -> None:
    """UsageError if there is no memory for the Python objects that `size` bytes of text become."""
    if size > LONG_BYTES:
        budget.require(OBJECT_BYTES * size, *_purpose(source))


def _state(source: Source) -> tuple[int, ...] | None:
    """What changes with a file; None if there is none."""
    try:
        state = source.path.stat()
    except OSError:  # if it was never there, reading it will say so
        return None
    if not stat.S_ISREG(state.st_mode):
        return None
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _add(one: Counts, other: Counts) -> Counts:
    return tuple(map(sum, zip(one, other, strict=True)))


def _cut(file: BinaryIO, start: int, source: Source) -> list[Span]:
    """Cut the rest of a file at line ends, into spans of some 4 MiB."""
    size = os.fstat(file.fileno()).st_size
    spans = []
    while start < size:
        file.seek(start + BLOCK_BYTES - 1)
        rest = file.readline(LONGEST_LINE)
        if len(rest) == LONGEST_LINE and not rest.endswith(b"\n"):
            raise too_long(source, _line_at(file, start + BLOCK_BYTES - 1))
        stop = min(file.tell(), size)
        spans.append(Span(file, source, start, stop))
        start = stop
    return spans


def _line_at(file: BinaryIO, place: int) -> int:
    """The line, from 1, in which the byte at `place` lies."""
    file.seek(0)
    sizes = (min(BLOCK_BYTES, place - start) for start in range(0, place, BLOCK_BYTES))
    return 1 + sum(file.read(size).count(b"\n") for size in sizes)


def lines_at(source: Source, lines: Iterable[int]) -> Iterator[bytes]:
    """Read some lines of a file again, by their ascending numbers, without their ends."""
    stream = blocks(source)
    block, contents = Block(1, b""), list[bytes]()
    for line in lines:
        while line >= block.first_line + len(contents):
            block = next(stream, Block(line, b""))
            contents = block.text.split(b"\n")[:-1]
            if not contents:
                raise changed(source)
        yield contents[line - block.first_line]


def blocks(source: Source) -> Iterator[Block]:
    """Cut a text file, compressed or not, at line ends, into blocks of some 4 MiB.

    Raises DataError when the file is missing, a directory, unreadable, corrupt or no text.
    """
    line, pending = 1, bytearray()
    with source.open() as file:
        for chunk in unpack(file, source, BLOCK_BYTES).chunks:
            end = chunk.rfind(b"\n") + 1
            if end:
                text = b"".join((pending, chunk[:end]))
                yield Block(line, text)
                line += text.count(b"\n")
                pending.clear()
            pending += chunk[end:]
            if len(pending) > LONGEST_LINE:
                raise too_long(source, line)
    if pending:
        yield Block(line, bytes(pending + b"\n"))


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
