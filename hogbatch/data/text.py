"""Text files as blocks of whole lines, parsed by several threads.

Every text format has two parsers that give the same result. Blocks of usual lines are parsed by a
compiled parser (`hogbatch.data.parse`). A block with an unusual line is halved until that line is
in a small piece, which is parsed line by line in Python; this also finds the exact place of an
error. A file of a single block is parsed line by line, which takes less time than loading the
compiler.

Files are read into memory, never mapped. A file that changes while it is read is a DataError. A
lack of memory is a UsageError before memory is allocated.
"""

import itertools
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO, Generic, NamedTuple, Protocol, TypeVar

from hogbatch.data.decompress import decompressed
from hogbatch.data.raw import DEFAULTS, ReadOptions
from hogbatch.data.signatures import FIRST_BYTES
from hogbatch.data.skipped import LineError, SkippedLines
from hogbatch.data.source import MAX_LINE_BYTES, Source, too_long
from hogbatch.errors import DataError
from hogbatch.machine import budget
from hogbatch.machine.printable import quoted

BLOCK_BYTES = 1 << 22
PIECE_BYTES = 1 << 15  # pieces of an unusual block up to this size are parsed line by line
PASSES = 2  # over the ranges of a file: the first one counts, the second one parses
MAX_WAITING = 8  # blocks that wait to be parsed
# Text of at least this size is parsed line by line only after a check of the available memory.
MIN_CHECKED_BYTES = 1 << 20
# "1," becomes a str, a float and their entries in lists.
OBJECT_BYTES_PER_CHAR = 40
FLOAT32_LIMIT = 2.0**128 - 2.0**103  # numbers from here on round to infinity in float32

Counts = tuple[int, ...]  # number of rows, then of other items that a format stores
BuffersT = TypeVar("BuffersT")


class TextBlock(NamedTuple):
    """Whole lines of a file, each with its newline."""

    first_line: int  # number in the file, from 1
    text: bytes


class ParsedPart(Protocol):
    """The parsed rows of a block."""

    @property
    def size(self) -> Counts:
        """The counts of rows and other items."""

    @property
    def skipped(self) -> SkippedLines:
        """The malformed lines, which are not in the part."""


PartT = TypeVar("PartT", bound=ParsedPart, covariant=True)


class LineFormat(Protocol[PartT, BuffersT]):
    """Parses lines into arrays. All methods except `allocate` are called by several threads."""

    def max_counts(self, text: bytes) -> Counts:
        """The maximum counts for `text`; the first is its number of newlines."""

    def byte_size(self, counts: Counts) -> int:
        """Bytes of buffers for these counts."""

    def allocate(self, counts: Counts) -> BuffersT:
        """Allocate buffers for these counts."""

    def parse(
        self, block: TextBlock, buffers: BuffersT, begin: Counts, end: Counts
    ) -> PartT | None:
        """Parse a block into the buffers from `begin` to `end`; None if any line is unusual."""

    def parse_lines(self, block: TextBlock) -> PartT:
        """Parse a block line by line into new arrays, skipping malformed lines."""


class ParsedFile(NamedTuple, Generic[PartT, BuffersT]):
    """All lines of a file after its header."""

    parts: list[PartT]  # in the order of the file
    buffers: BuffersT | None  # shared by the parts, or None
    skipped: SkippedLines


class ByteRange(NamedTuple):
    """A range of whole lines in a seekable file."""

    file: BinaryIO
    source: Source
    start: int
    stop: int

    def read(self) -> bytes:
        """Read the lines, each with its newline."""
        text = os.pread(self.file.fileno(), self.stop - self.start, self.start)
        self.source.progress.add(len(text) / PASSES)
        if len(text) < self.stop - self.start:
            raise changed_error(self.source)
        return text if text.endswith(b"\n") else text + b"\n"


class TextFile:
    """A text file, possibly compressed; its first block is read on creation.

    DataError if the file is missing, a directory, unreadable, corrupt or not text.
    """

    def __init__(self, source: Source, options: ReadOptions = DEFAULTS) -> None:
        self._source = source
        self._options = options
        self._state = state_of(source)
        self._stream: Iterator[TextBlock] = blocks(source)
        self.first = next(self._stream, TextBlock(1, b""))
        line = self.first.text.find(b"\n")
        _require_object_memory(max(line, 0), source)

    def parse(
        self, rest: TextBlock, line_format: LineFormat[PartT, BuffersT]
    ) -> ParsedFile[PartT, BuffersT]:
        """Parse all lines after the header; `rest` is the first block without the header.

        DataError if there are more malformed lines than allowed, or if the file has changed.
        """
        parser = BlockParser(self._source, line_format, strict=not self._options.bad_lines)
        try:
            parsed = self._parse(rest, parser)
        except DataError:
            self._checkstate_of()  # if the file has changed, report that instead
            raise
        self._checkstate_of()
        parts, buffers = parsed
        skipped = SkippedLines.of_parts(part.skipped for part in parts)
        rows = sum(part.size[0] for part in parts)
        skipped.check(self._source, rows, self._options.bad_lines)
        return ParsedFile(parts, buffers, skipped)

    def _checkstate_of(self) -> None:
        if state_of(self._source) != self._state:
            raise changed_error(self._source) from None

    def _parse(
        self, rest: TextBlock, parser: "BlockParser[PartT, BuffersT]"
    ) -> tuple[list[PartT], BuffersT | None]:
        second = next(self._stream, None)
        if second is None:
            return [parser.by_line(rest)], None
        from hogbatch.data.parse import decimal  # noqa: F401 - load before memory checks

        with ThreadPoolExecutor(self._options.threads or len(os.sched_getaffinity(0))) as pool:
            with self._source.open() as file:
                text = decompressed(file, self._source, FIRST_BYTES)
                if text.plain:
                    start = text.bom_bytes + len(self.first.text) - len(rest.text)
                    ranges = _split_at_lines(file, start, self._source)
                    return parser.ranges(pool, rest.first_line, ranges)
            return parser.stream(pool, itertools.chain((rest, second), self._stream)), None


@dataclass(frozen=True, slots=True)
class BlockParser(Generic[PartT, BuffersT]):
    """Parses the blocks of a file with a line format."""

    source: Source
    line_format: LineFormat[PartT, BuffersT]
    strict: bool  # the first malformed line is a DataError

    def stream(self, pool: ThreadPoolExecutor, stream: Iterator[TextBlock]) -> list[PartT]:
        """Parse blocks while the next ones are decompressed.

        The total size is unknown, so each block requires memory for the waiting blocks and for a
        copy of all rows so far, which are concatenated at the end.
        """

        def parse(block: TextBlock) -> list[PartT]:
            counts = self.line_format.max_counts(block.text)
            buffers = self._allocate(
                counts, len(waiting) * self.line_format.byte_size(counts) + parsed
            )
            return self.block(block, buffers, (0,) * len(counts), counts)

        waiting: deque[Future[list[PartT]]] = deque()
        parts: list[PartT] = []
        parsed = 0  # bytes
        for block in stream:
            waiting.append(pool.submit(parse, block))
            if len(waiting) > MAX_WAITING:
                parts += (more := waiting.popleft().result())
                parsed += sum(self.line_format.byte_size(part.size) for part in more)
        parts += itertools.chain.from_iterable(future.result() for future in waiting)
        self._expect(sum(self.line_format.byte_size(part.size) for part in parts))
        return parts

    def ranges(
        self, pool: ThreadPoolExecutor, line: int, ranges: Sequence[ByteRange]
    ) -> tuple[list[PartT], BuffersT]:
        """Parse byte ranges into buffers for the whole file, each at its position."""
        counts = list(
            pool.map(lambda byte_range: self.line_format.max_counts(byte_range.read()), ranges)
        )
        ends = list(itertools.accumulate(counts, _add))
        begins = [(0,) * len(ends[0]), *ends[:-1]]
        buffers = self._allocate(ends[-1], self.line_format.byte_size(ends[-1]))

        def parse(byte_range: ByteRange, begin: Counts, end: Counts) -> list[PartT]:
            return self.block(TextBlock(line + begin[0], byte_range.read()), buffers, begin, end)

        return list(itertools.chain.from_iterable(pool.map(parse, ranges, begins, ends))), buffers

    def _allocate(self, counts: Counts, needed: int) -> BuffersT:
        """Allocate buffers; UsageError unless `needed` bytes of memory are available."""
        self._expect(needed)
        try:
            return self.line_format.allocate(counts)
        except MemoryError:
            raise budget.insufficient_memory(needed, *_memory_purpose(self.source)) from None

    def _expect(self, needed: int) -> None:
        budget.require(needed, *_memory_purpose(self.source))

    def block(self, block: TextBlock, buffers: BuffersT, begin: Counts, end: Counts) -> list[PartT]:
        """Parse a block into its buffers, and pieces with unusual lines line by line."""
        part = self.line_format.parse(block, buffers, begin, end)
        if part is not None:
            return [part]
        text = block.text
        half = text.rfind(b"\n", 0, len(text) // 2) + 1
        if len(text) <= PIECE_BYTES or not half:
            part = self.by_line(block)
            if any(n > e - b for n, b, e in zip(part.size, begin, end, strict=True)):
                raise changed_error(self.source)  # after its lines were counted
            return [part]
        counts = self.line_format.max_counts(text[:half])
        middle = tuple(map(min, _add(begin, counts), end))
        rest = TextBlock(block.first_line + counts[0], text[half:])
        first = self.block(TextBlock(block.first_line, text[:half]), buffers, begin, middle)
        return first + self.block(rest, buffers, middle, end)

    def by_line(self, block: TextBlock) -> PartT:
        """Parse a block line by line."""
        _require_object_memory(len(block.text), self.source)
        part = self.line_format.parse_lines(block)
        if self.strict:
            part.skipped.check(self.source, part.size[0], 0)
        return part


def changed_error(source: Source) -> DataError:
    """The error for a file that changes while it is read."""
    return DataError(
        f"{source} changed while it was read; start again when no process writes to it"
    )


def _memory_purpose(source: Source) -> tuple[str, str]:
    """The purpose of the memory, and advice for using less."""
    return f"the rows of {source}", "use fewer rows, or a machine with more memory"


def _require_object_memory(size: int, source: Source) -> None:
    """UsageError if there is no memory for the Python objects of `size` bytes of text."""
    if size > MIN_CHECKED_BYTES:
        budget.require(OBJECT_BYTES_PER_CHAR * size, *_memory_purpose(source))


def state_of(source: Source) -> tuple[int, ...] | None:
    """Attributes that change when a file changes; None for other paths."""
    try:
        state = source.path.stat()
    except OSError:  # reading reports a missing file
        return None
    if not stat.S_ISREG(state.st_mode):
        return None
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _add(one: Counts, other: Counts) -> Counts:
    return tuple(map(sum, zip(one, other, strict=True)))


def _split_at_lines(file: BinaryIO, start: int, source: Source) -> list[ByteRange]:
    """Split the rest of a file at line ends into ranges of about 4 MiB."""
    size = os.fstat(file.fileno()).st_size
    ranges = []
    while start < size:
        file.seek(start + BLOCK_BYTES - 1)
        rest = file.readline(MAX_LINE_BYTES)
        if len(rest) == MAX_LINE_BYTES and not rest.endswith(b"\n"):
            raise too_long(source, _line_at(file, start + BLOCK_BYTES - 1))
        stop = min(file.tell(), size)
        ranges.append(ByteRange(file, source, start, stop))
        start = stop
    return ranges


def _line_at(file: BinaryIO, offset: int) -> int:
    """The number of the line, from 1, that contains the byte at `offset`."""
    file.seek(0)
    sizes = (min(BLOCK_BYTES, offset - start) for start in range(0, offset, BLOCK_BYTES))
    return 1 + sum(file.read(size).count(b"\n") for size in sizes)


def lines_at(source: Source, lines: Iterable[int]) -> Iterator[bytes]:
    """Read lines of a file again, by ascending line numbers, without line ends."""
    stream = blocks(source)
    block, contents = TextBlock(1, b""), list[bytes]()
    for line in lines:
        while line >= block.first_line + len(contents):
            block = next(stream, TextBlock(line, b""))
            contents = block.text.split(b"\n")[:-1]
            if not contents:
                raise changed_error(source)
        yield contents[line - block.first_line]


def blocks(source: Source) -> Iterator[TextBlock]:
    """Split a text file, possibly compressed, at line ends into blocks of about 4 MiB.

    DataError if the file is missing, a directory, unreadable, corrupt or not text.
    """
    line, pending = 1, bytearray()
    with source.open() as file:
        for chunk in decompressed(file, source, BLOCK_BYTES).chunks:
            end = chunk.rfind(b"\n") + 1
            if end:
                text = b"".join((pending, chunk[:end]))
                yield TextBlock(line, text)
                line += text.count(b"\n")
                pending.clear()
            pending += chunk[end:]
            if len(pending) > MAX_LINE_BYTES:
                raise too_long(source, line)
    if pending:
        yield TextBlock(line, bytes(pending + b"\n"))


def number(token: str, at: int = 0) -> float:
    """Parse a number, which is at position `at` of its line.

    LineError unless it is a decimal number in the range of float32.
    """
    try:
        value = float(token)
    except ValueError:
        raise LineError(at, f"expected a number; got {quoted(token)}") from None
    if "_" in token or not token.isascii():  # float accepts 1_000 and non-ASCII digits
        raise LineError(at, f"expected a number; got {quoted(token)}")
    if not abs(value) < FLOAT32_LIMIT:
        raise LineError(at, f"expected a finite number within float32; got {quoted(token)}")
    return value
