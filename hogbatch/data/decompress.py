"""The text of a file in chunks: decompressed, without a byte order mark, with \\n line ends.

The file type and compression are detected from the first bytes, never from the file name.
"""

import bz2
import codecs
import gzip
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO, Final

from hogbatch.data.signatures import FIRST_BYTES, MAX_MAGIC_BYTES, compression_of, not_text
from hogbatch.data.source import Source, not_data
from hogbatch.errors import DataError

OPENED: Final[dict[str, Callable[..., gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile]]] = {
    "gzip": partial(gzip.GzipFile, None, "rb", 9),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
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
    returns = _has_carriage_returns(start)
    for chunk in itertools.chain(held, chunks):
        mark, chunk = max(0, mark - len(chunk)), chunk[mark:]
        yield chunk.replace(b"\r", b"\n") if returns else chunk


def _has_carriage_returns(start: bytes) -> bool:
    """Whether lines end in \\r alone, as on old Macs; the last byte may be half of \\r\\n."""
    return b"\n" not in start and b"\r" in (start[:-1] if len(start) == FIRST_BYTES else start)


def _decompressed(
    file: BinaryIO, source: Source, compression: str, chunk_bytes: int
) -> Iterator[bytes]:
    """Decompress a file of one or more members, which may be padded with zeros."""
    stream = OPENED[compression](file)
    while True:
        try:
            chunk = stream.read(chunk_bytes)
        except EOFError:
            raise DataError(
                f"{source}: the {compression} data is truncated; is the file complete?"
            ) from None
        except (zlib.error, lzma.LZMAError, OSError) as error:
            raise DataError(f"{source}: the {compression} data is damaged: {error}") from None
        if not chunk:
            return
        yield chunk
