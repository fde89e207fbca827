"""The text of a file in chunks: decompressed, without a byte order mark, with \\n line ends.

The file type and compression are detected from the first bytes, never from the file name.
"""

import bz2
import codecs
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

from hogbatch.data.signatures import FIRST_BYTES, MAX_MAGIC_BYTES, compression_of, not_text
from hogbatch.data.source import Source, not_data
from hogbatch.errors import DataError
from hogbatch.machine import budget

COMPRESSED_CHUNK_BYTES: Final = 1 << 20  # compressed bytes per read
GZIP_FORMAT: Final = 31  # zlib: the largest window, gzip header and checksum


class GzipDecompressor:
    """Decompressor of one member of a gzip file, with the interface of the modules bz2 and lzma."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(GZIP_FORMAT)
        self.needs_input = True
        self.eof = False  # whether the member has ended
        self.unused_data = b""  # input after its end

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Decompress up to `max_length` bytes."""
        text = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        self.needs_input = not self._inflate.unconsumed_tail and len(text) < max_length
        self.eof, self.unused_data = self._inflate.eof, self._inflate.unused_data
        return text


Decompressor = GzipDecompressor | bz2.BZ2Decompressor | lzma.LZMADecompressor
# Not the file objects of these modules: those of bz2 and lzma end at a damaged member without an
# error, and gzip takes longer.
DECOMPRESSORS: Final[dict[str, Callable[[], Decompressor]]] = {
    "gzip": GzipDecompressor,
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=budget.available().size),
}


def decompressed(file: BinaryIO, source: Source, chunk_bytes: int) -> Iterator[bytes]:
    """Yield the text of a file in chunks of up to `chunk_bytes` bytes (except the first).

    DataError if the file is not text, or if compressed data are damaged.
    """
    compression = compression_of(file.read(MAX_MAGIC_BYTES))
    file.seek(0)
    chunks = (
        _decompressed(file, source, compression, chunk_bytes)
        if compression
        else iter(lambda: file.read(chunk_bytes), b"")
    )
    held, size = [], 0
    for chunk in chunks:
        held.append(chunk)
        if (size := size + len(chunk)) >= FIRST_BYTES:
            break
    start = b"".join(held)[:FIRST_BYTES]
    if what := not_text(start):
        raise not_data(source, f"{compression} data of {what}" if compression else what)
    mark = len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0
    # Lines may end in \r alone, as on old Macs; the last byte may be half of \r\n.
    whole = start[:-1] if len(start) == FIRST_BYTES else start
    returns = b"\n" not in start and b"\r" in whole
    for chunk in itertools.chain(held, chunks):
        mark, chunk = max(0, mark - len(chunk)), chunk[mark:]
        yield chunk.replace(b"\r", b"\n") if returns else chunk


def _decompressed(
    file: BinaryIO, source: Source, compression: str, chunk_bytes: int
) -> Iterator[bytes]:
    """Decompress a file of one or more members, which may be padded with zeros."""
    decompressor, compressed = DECOMPRESSORS[compression](), b""

    def step(data: bytes) -> bytes:
        try:
            return decompressor.decompress(data, chunk_bytes)
        except (zlib.error, lzma.LZMAError, OSError) as error:
            raise DataError(f"{source}: the {compression} data is damaged: {error}") from None

    while compressed := compressed or file.read(COMPRESSED_CHUNK_BYTES):
        if decompressor.eof:
            compressed = compressed.lstrip(b"\0")
            decompressor = DECOMPRESSORS[compression]() if compressed else decompressor
            continue
        yield step(compressed)
        while not (decompressor.eof or decompressor.needs_input):
            yield step(b"")
        compressed = decompressor.unused_data
    if not decompressor.eof:
        raise DataError(f"{source}: the {compression} data is truncated; is the file complete?")
