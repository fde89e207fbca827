"""Text files as blocks of whole lines, parsed by several threads.

There are two parsers that give the same result. Blocks of usual lines are parsed by a compiled
parser (`hogbatch.data.parse`). A block with an unusual line is halved until that line is in a small
piece, which is parsed line by line in Python; this also finds the exact place of an error. A file
of a single block is parsed line by line, which takes less time than loading the compiler.

Files are read into memory, never mapped. A file that changes while it is read is a DataError. A
lack of memory is a UsageError before memory is allocated.
"""

import itertools
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from hogbatch.data.decompress import decompressed
from hogbatch.data.raw import DEFAULTS, ReadOptions
from hogbatch.data.skipped import LineError, SkippedLines
from hogbatch.data.source import MAX_LINE_BYTES, Source, too_long
from hogbatch.errors import DataError
from hogbatch.machine import budget
from hogbatch.machine.printable import quoted

if TYPE_CHECKING:  # it imports this module
    from hogbatch.data.sparse import SparseFormat, SparsePart

BLOCK_BYTES = 1 << 22
PIECE_BYTES = 1 << 15  # pieces of an unusual block up to this size are parsed line by line
MAX_WAITING = 8  # blocks that wait to be parsed
# Text of at least this size is parsed line by line only after a check of the available memory.
MIN_CHECKED_BYTES = 1 << 20
# "1," becomes a str, a float and their entries in lists.
OBJECT_BYTES_PER_CHAR = 40
FLOAT32_LIMIT = 2.0**128 - 2.0**103  # numbers from here on round to infinity in float32


class TextBlock(NamedTuple):
    """Whole lines of a file, each with its newline."""

    first_line: int  # number in the file, from 1
    text: bytes


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
        self, rest: TextBlock, line_format: "SparseFormat"
    ) -> tuple[list["SparsePart"], SkippedLines]:
        """Parse all lines after the header; `rest` is the first block without the header.

        DataError if there are more malformed lines than allowed, or if the file has changed.
        """
        try:
            parts = self._parse(rest, line_format)
        except DataError:
            self._check_state()  # if the file has changed, report that instead
            raise
        self._check_state()
        skipped = SkippedLines.of_parts(part.skipped for part in parts)
        rows = sum(part.size[0] for part in parts)
        skipped.check(self._source, rows, self._options.bad_lines)
        return parts, skipped

    def _check_state(self) -> None:
        if state_of(self._source) != self._state:
            raise changed_error(self._source) from None

    def _parse(self, rest: TextBlock, line_format: "SparseFormat") -> list["SparsePart"]:
        """Parse blocks while the next ones are read and decompressed.

        The total size is unknown, so each block requires memory for the waiting blocks and for a
        copy of all rows so far, which are concatenated at the end.
        """
        second = next(self._stream, None)
        if second is None:
            return [self._by_line(rest, line_format)]
        from hogbatch.data.parse import decimal  # noqa: F401 - load before memory checks

        waiting: deque[Future[list[SparsePart]]] = deque()
        parts: list[SparsePart] = []
        parsed = 0  # bytes

        def parse(block: TextBlock) -> list["SparsePart"]:
            size = line_format.byte_size(line_format.max_counts(block.text))
            _require(len(waiting) * size + parsed, self._source)
            return self._block(block, line_format)

        with ThreadPoolExecutor(self._options.threads or len(os.sched_getaffinity(0))) as pool:
            for block in itertools.chain((rest, second), self._stream):
                waiting.append(pool.submit(parse, block))
                if len(waiting) > MAX_WAITING:
                    parts += (more := waiting.popleft().result())
                    parsed += sum(line_format.byte_size(part.size) for part in more)
            parts += itertools.chain.from_iterable(future.result() for future in waiting)
        _require(sum(line_format.byte_size(part.size) for part in parts), self._source)
        return parts

    def _block(self, block: TextBlock, line_format: "SparseFormat") -> list["SparsePart"]:
        """Parse a block, and pieces with unusual lines line by line."""
        part = line_format.parse(block)
        if part is not None:
            return [part]
        text = block.text
        half = text.rfind(b"\n", 0, len(text) // 2) + 1
        if len(text) <= PIECE_BYTES or not half:
            return [self._by_line(block, line_format)]
        rest = TextBlock(block.first_line + text.count(b"\n", 0, half), text[half:])
        first = self._block(TextBlock(block.first_line, text[:half]), line_format)
        return first + self._block(rest, line_format)

    def _by_line(self, block: TextBlock, line_format: "SparseFormat") -> "SparsePart":
        """Parse a block line by line."""
        _require_object_memory(len(block.text), self._source)
        part = line_format.parse_lines(block)
        if not self._options.bad_lines:
            part.skipped.check(self._source, part.size[0], 0)
        return part


def changed_error(source: Source) -> DataError:
    """The error for a file that changes while it is read."""
    return DataError(
        f"{source} changed while it was read; start again when no process writes to it"
    )


def _require(needed: int, source: Source) -> None:
    """UsageError unless `needed` bytes of memory are available for rows."""
    budget.require(needed, f"the rows of {source}", "use fewer rows, or a machine with more memory")


def _require_object_memory(size: int, source: Source) -> None:
    """UsageError if there is no memory for the Python objects of `size` bytes of text."""
    if size > MIN_CHECKED_BYTES:
        _require(OBJECT_BYTES_PER_CHAR * size, source)


def state_of(source: Source) -> tuple[int, ...] | None:
    """Attributes that change when a file changes; None for other paths."""
    try:
        state = source.path.stat()
    except OSError:  # reading reports a missing file
        return None
    if not stat.S_ISREG(state.st_mode):
        return None
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


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


def blocks(source: Source, block_bytes: int | None = None) -> Iterator[TextBlock]:
    """Split a text file, possibly compressed, at line ends into blocks of about `block_bytes`.

    If that is None, they have about BLOCK_BYTES, 4 MiB. DataError if the file is missing, a
    directory, unreadable, corrupt or not text.
    """
    line, pending, size = source.first_line, list[bytes | memoryview](), 0
    with source.open() as file:
        for chunk in decompressed(file, source, block_bytes or BLOCK_BYTES):
            end = chunk.rfind(b"\n") + 1
            if end:
                text = b"".join((*pending, memoryview(chunk)[:end]))
                yield TextBlock(line, text)
                line += text.count(b"\n")
                pending, size = [], 0
            pending.append(chunk[end:])
            size += len(chunk) - end
            if size > MAX_LINE_BYTES:
                raise too_long(source, line)
    if size:
        yield TextBlock(line, b"".join((*pending, b"\n")))


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
