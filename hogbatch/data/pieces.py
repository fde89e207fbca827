"""A large text file in pieces that are read one after the other, so that each fits into memory."""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from hogbatch.data.source import Source
from hogbatch.data.text import BLOCK_BYTES, TextBlock, blocks, changed_error, state_of

PIECE_BYTES: Final = 1 << 26
CELL: Final = 8  # bytes of a number as read
# All cells up to a quoted one that does not end; D is the delimiter.
CELLS: Final = r'(?:(?:"(?:[^"]++|"")*+"|(?!"))[^D\n]*+[D\n])*+'


def is_large(source: Source) -> bool:
    """Whether a path is a file of more than one piece."""
    return source.path.is_file() and source.path.stat().st_size > PIECE_BYTES


def text_pieces(source: Source, piece_bytes: int | None, delimiter: str = "") -> Iterator[Source]:
    """Yield the lines of a text file in pieces, as files in memory.

    They have about `piece_bytes` (None: PIECE_BYTES). With the `delimiter` of a CSV file, they end
    where no cell is in quotes: such a cell may contain line ends. DataError if the file changes.
    """
    state, waiting, size, quote = state_of(source), list[TextBlock](), 0, b""
    cells = re.compile(CELLS.replace("D", delimiter).encode())
    for block in blocks(source, piece_bytes and min(piece_bytes, BLOCK_BYTES)):
        waiting.append(block)
        size += len(block.text)
        if delimiter and b'"' in (text := quote + block.text):
            quote = b"" if cells.fullmatch(text) else b'"'
        if size >= (piece_bytes or PIECE_BYTES) and not quote:
            yield in_memory(source, [each.text for each in waiting], waiting[0].first_line)
            waiting, size = [], 0
    if not all(block.text.isspace() for block in waiting):
        yield in_memory(source, [each.text for each in waiting], waiting[0].first_line)
    if state_of(source) != state:
        raise changed_error(source)


class _Memory:
    """A file in memory, which is freed with this object."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("hogbatch-piece")

    def __del__(self) -> None:
        os.close(self.fd)


def in_memory(source: Source, contents: Iterable[bytes], first_line: int = 1) -> Source:
    """A piece of `source` with these `contents`."""
    memory = _Memory()
    with open(memory.fd, "wb", 0, closefd=False) as file:
        for content in contents:
            file.write(content)
    return replace(
        source,
        path=Path(f"/proc/self/fd/{memory.fd}"),
        given_path=source.given_path or source.path,
        persistent=False,
        first_line=first_line,
        memory=memory,
    )
