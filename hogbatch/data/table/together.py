"""Columns of a table that are encoded in one pass: all plain numbers, or another column alone."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.order import RowNumbers
from hogbatch.data.table.columns import NumberColumn, Table
from hogbatch.data.table.encoder import Block
from hogbatch.data.table.encoders import CategoryEncoder, DateEncoder, Encoder, TextEncoder
from hogbatch.data.table.numeric import NumericEncoder, PlainNumbers


class EncodedTogether(NamedTuple):
    """Columns of a `TableEncoding` that are encoded together."""

    columns: tuple[int, ...]  # places in `TableEncoding.columns`
    stored: NDArray[np.intp]  # the places of their stored values among those of a row
    first: int  # to be added to the features
    encoder: PlainNumbers | NumericEncoder | DateEncoder | CategoryEncoder

    def encode(self, table: Table, rows: RowNumbers) -> Block:
        """The features of some rows of the columns."""
        if not isinstance(self.encoder, PlainNumbers):
            block = self.encoder.encode(table.columns[self.columns[0]], rows)
            return block._replace(features=block.features + np.int32(self.first))
        cells = np.empty((len(rows), len(self.columns)))
        for place, n in enumerate(self.columns):
            column = table.columns[n]
            assert isinstance(column, NumberColumn)
            cells[:, place] = column.values.take(rows)
        return self.encoder.encode(cells)


def encoded_together(encoders: Iterable[tuple[Encoder, int]]) -> tuple[EncodedTogether, ...]:
    """All columns but texts, from the encoder and the first feature of each column."""
    stored, plain, others = 0, [], list[EncodedTogether]()
    for n, (encoder, first) in enumerate(encoders):
        if isinstance(encoder, NumericEncoder) and encoder.plain:
            plain.append((n, stored, first, encoder))
        elif not isinstance(encoder, TextEncoder):
            places = np.arange(stored, stored + encoder.stored)
            others.append(EncodedTogether((n,), places, first, encoder))
        stored += encoder.stored
    if not plain:
        return tuple(others)
    numbers = PlainNumbers.of([(first, encoder) for _, _, first, encoder in plain])
    columns, at = tuple(n for n, *_ in plain), np.array([place for _, place, *_ in plain])
    return EncodedTogether(columns, at, 0, numbers), *others


def store(block: Block, dense: NDArray[np.float32]) -> None:
    """Put the stored values of rows in their places in dense[B, F]."""
    features, values = block
    if len(features) == 1:  # faster
        dense[:, features[0]] = values
    else:
        dense[np.arange(len(dense))[:, np.newaxis], features] = values
