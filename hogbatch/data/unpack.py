"""The text of a file in chunks: decompressed, without a byte order mark, lines ending in \\n.

What the file is and how it is compressed is told by its first bytes, never by its name.
"""

import bz2
import codecs
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final, NamedTuple, Protocol

from hogbatch.data.signatures import FIRST_BYTES, LONGEST_SIGN, not_text, packing
from hogbatch.data.source import Source, not_data
from hogbatch.errors import DataError
from hogbatch.machine import budget

PACKED_BYTES: Final = 1 << 20  # compressed, that are read at once
GZIP_FORMAT: Final = 31  # zlib: the largest window, gzip header and checksum


class Unpacker(Protocol):
    """What decompresses one member of a file, as in the modules bz2 and lzma."""

    @property
    def eof(self) -> bool:
        """Whether the member has ended."""

    @property
    def needs_input(self) -> bool:
        """Whether nothing comes without more input."""

    @property
    def unused_data(self) -> bytes:
        """Input after the end of the member."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Decompress up to `max_length` bytes."""


class Gzip:
    """zlib as an `Unpacker`."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(GZIP_FORMAT)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        """Whether the member has ended."""
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        """Input after the end of the member."""
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Decompress up to `max_length` bytes."""
        text = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        self.needs_input = not self._inflate.unconsumed_tail and len(text) < max_length
        return text


def _xz() -> Unpacker:
    return lzma.LZMADecompressor(memlimit=budget.available().size)


UNPACKERS: Final[dict[str, Callable[[], Unpacker]]] = {
    "gzip": Gzip,
    "bzip2": bz2.BZ2Decompressor,
    "xz": _xz,
}


class Text(NamedTuple):
    """How the text of a file lies in it."""

    chunks: Iterator[bytes]
    mark: int  # bytes of the byte order mark before it
    plain: bool  # after the mark the file is the text, byte for byte


def unpack(file: BinaryIO, source: Source, most: int) -> Text:
    """The text of a file in chunks of up to `most` bytes (its first one apart).

    DataError if the file is something else than text, or if compressed data are not intact.
    """
    how = packing(file.read(LONGEST_SIGN))
    file.seek(0)
    chunks = _unpacked(file, source, how, most) if how else iter(lambda: file.read(most), b"")
    held, size = [], 0
    for chunk in chunks:
        held.append(chunk)
        if (size := size + len(chunk)) >= FIRST_BYTES:
            break
    start = b"".join(held)[:FIRST_BYTES]
    if what := not_text(start):
        raise not_data(source, f"{how} data of {what}" if how else what)
    mark = len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0
    returns = _ends_in_returns(start)
    return Text(_lines_of(held, chunks, mark, returns), mark, not how and not returns)


def _ends_in_returns(start: bytes) -> bool:
    """Whether \\r alone ends lines, as on old Macs; the last byte may be half of \\r\\n."""
    return b"\n" not in start and b"\r" in (start[:-1] if len(start) == FIRST_BYTES else start)


def _lines_of(
    held: list[bytes], chunks: Iterator[bytes], mark: int, returns: bool
) -> Iterator[bytes]:
    """Leave the mark out, and let lines end in \\n."""
    while held:
        chunk = held.pop(0)
        mark, chunk = max(0, mark - len(chunk)), chunk[mark:]
        yield chunk.replace(b"\r", b"\n") if returns else chunk
    for chunk in chunks:
        yield chunk.replace(b"\r", b"\n") if returns else chunk


def _unpacked(file: BinaryIO, source: Source, how: str, most: int) -> Iterator[bytes]:
    """Decompress a file of one or more members, with as many zeros between them as there may be."""
    unpacker, packed = UNPACKERS[how](), b""

    def step(data: bytes) -> bytes:
        try:
            return unpacker.decompress(data, most)
        except (zlib.error, lzma.LZMAError, OSError) as error:
            raise DataError(f"{source}: the {how} data is not intact: {error}") from None

    while packed := packed or file.read(PACKED_BYTES):
        if unpacker.eof:
            packed = packed.lstrip(b"\0")
            unpacker = UNPACKERS[how]() if packed else unpacker
            continue
        yield step(packed)
        while not (unpacker.eof or unpacker.needs_input):
            yield step(b"")
        packed = unpacker.unused_data
    if not unpacker.eof:
        raise DataError(f"{source}: the {how} data ends early; is the file complete?")
