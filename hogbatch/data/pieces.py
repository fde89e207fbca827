"""A large text file in pieces that are read one after the other, so that each fits into memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from hogbatch.data.source import Source
from hogbatch.data.text import TextBlock, blocks, changed_error, state_of

PIECE_BYTES: Final = 1 << 26
QUOTE: Final = b'"'


def is_large(source: Source) -> bool:
    """Whether a path is a file of more than one piece."""
    return source.path.is_file() and source.path.stat().st_size > PIECE_BYTES


def text_pieces(source: Source) -> Iterator[Source]:
    """Yield the lines of a text file in pieces, as files in memory; each is valid until the next.

    They have about PIECE_BYTES. A piece ends where no cell of a CSV file is in quotes, because such
    a cell may contain line ends. DataError if the file changes meanwhile.
    """
    state, waiting, size, quotes = state_of(source), list[TextBlock](), 0, 0
    for block in blocks(source):
        waiting.append(block)
        size += len(block.text)
        quotes += block.text.count(QUOTE)
        if size >= PIECE_BYTES and quotes % 2 == 0:
            with _in_memory(source, waiting) as piece:
                yield piece
            waiting, size = [], 0
    if not all(block.text.isspace() for block in waiting):
        with _in_memory(source, waiting) as piece:
            yield piece
    if state_of(source) != state:
        raise changed_error(source)


@contextmanager
def _in_memory(source: Source, lines: list[TextBlock]) -> Iterator[Source]:
    with os.fdopen(os.memfd_create("hogbatch-piece"), "wb", 0) as file:
        for block in lines:
            file.write(block.text)
        path = Path(f"/proc/self/fd/{file.fileno()}")
        given = source.given_path or source.path
        first = lines[0].first_line
        yield replace(source, path=path, given_path=given, persistent=False, first_line=first)
