"""Data that are larger than memory: read in pieces, and encoded like a sample of these.

The sample is some of the pieces, from all over the file. It is read and split as data are that fit
into memory; the rows of each other piece are encoded and scaled like its training rows.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from hogbatch.data.facts import Fitted
from hogbatch.data.later import rows_like
from hogbatch.data.load import LoadedData, load, prepare
from hogbatch.data.pieces import PIECE_BYTES
from hogbatch.data.raw import ReadOptions
from hogbatch.data.readers import LargeFile, pieces_of, read_together

PIECE_FRACTION: Final = 128  # of the memory for a piece, ...
SAMPLE_FRACTION: Final = 16  # and for the sample: reading takes several times as much


def load_in_pieces(
    large: LargeFile, memory: int, *, options: ReadOptions, **settings: Any
) -> Iterator[LoadedData]:
    """Yield the sample, with the rows of files that are held out, and then each other piece.

    The other arguments are those of `load`; a piece takes a small part of `memory` bytes. DataError
    for an invalid file, or for a label that only rows outside of the sample have.
    """
    size = min(PIECE_BYTES, memory // PIECE_FRACTION)
    step = max(1, math.ceil(large.bytes / (memory // SAMPLE_FRACTION)))
    if not large.table:
        options = _with_all_features(large, options, size)
    elif options.table is not None:
        options = replace(options, table=replace(options.table, constant=True))
    chosen = [piece for n, piece in enumerate(pieces_of(large, options, size)) if n % step == 0]
    rows = [read_together(chosen, options)]
    del chosen
    settings |= {"options": options, "drop_constant": False}  # other rows may have other values
    data = load(large.source.path, rows=rows.pop(), **settings)
    known = data.encoding, data.scaler, data.table, data.columns, data.index_base
    like = Fitted(*known, data.train_sizes.features)
    yield data
    del data
    split_off = settings["fractions"]._replace(**dict.fromkeys(settings["files"], 0))
    for number, piece in enumerate(pieces_of(large, options, size)):
        if number % step:
            seed = settings["seed"], number
            rows = [rows_like(like, partial(read_together, [piece]), options)]
            yield prepare(rows.pop(), fractions=split_off, scale=like, seed=seed)


def _with_all_features(large: LargeFile, options: ReadOptions, size: int) -> ReadOptions:
    """The options with which all pieces of libsvm text have the features of the whole file."""
    base, highest = options.index_base, -1
    for piece in pieces_of(large, options, size):
        raw = read_together([piece], options)
        assert raw.index_base is not None
        base = raw.index_base if base is None else min(base, raw.index_base)
        highest = max(highest, raw.features - 1 + raw.index_base)
    return replace(options, index_base=base, declared=options.declared or highest + 1 - (base or 0))
