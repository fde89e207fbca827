"""Lines of labels and index:value pairs, "3,17 5:0.5 9:1": what libsvm and XMC text share.

This module covers the grammar of a line. It does not cover what index 0 means, comments, or the
XMC header (see `libsvm` and `xmc`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.raw import MAX_INDEX, LabelLists
from hogbatch.data.text import Block, number, plain_numbers, quoted
from hogbatch.errors import DataError

NUMBER, BLANK, NEWLINE, COLON, COMMA = range(5)
KIND = np.full(256, NUMBER, np.uint8)  # of each byte of a block that holds plain numbers
for _kind, _bytes in ((BLANK, b" \t\r"), (NEWLINE, b"\n"), (COLON, b":"), (COMMA, b",")):
    KIND[list(_bytes)] = _kind


class SparseRows(NamedTuple):
    """Rows as written: indices in the file's order and base, any number of labels a row."""

    lines: NDArray[np.int64]  # [N]
    label_indptr: NDArray[np.int64]  # [N + 1]
    labels: NDArray[np.float64]
    indptr: NDArray[np.int64]  # [N + 1]
    indices: NDArray[np.int32]
    values: NDArray[np.float32]


def parse(block: Block, source: Path) -> SparseRows:
    """Read a block, one row a line, blank lines included. DataError names the line of a mistake."""
    tidy = Block(block.first_line, block.text.replace(b", ", b","))
    rows = parse_plain(tidy)
    return parse_lines(tidy, source) if rows is None else rows


def parse_plain(block: Block) -> SparseRows | None:
    """Read a block at once, or return None when anything in it is unusual."""
    numbers = plain_numbers(block.text, b":, \t\r\n")
    if numbers is None:
        return None
    kind = KIND[np.frombuffer(b"\n" + block.text, np.uint8)]
    edges = np.flatnonzero(np.diff(kind == NUMBER))  # in turn: byte before a number, its last byte
    starts, before, after = edges[::2], kind[edges[::2]], kind[edges[1::2] + 1]
    assert len(numbers) == len(starts)
    if not _in_order(kind, before, after):
        return None
    index, value = after == COLON, before == COLON
    label, indices = ~(index | value), numbers[index]
    if not ((indices >= 0) & (indices <= MAX_INDEX) & (indices == np.floor(indices))).all():
        return None
    newlines = np.flatnonzero(kind == NEWLINE)
    return SparseRows(
        lines=np.arange(block.first_line, block.first_line + len(newlines) - 1),
        label_indptr=np.searchsorted(starts[label], newlines),
        labels=numbers[label],
        indptr=np.searchsorted(starts[index], newlines),
        indices=indices.astype(np.int32),
        values=numbers[value].astype(np.float32),
    )


def _in_order(kind: NDArray[np.uint8], before: NDArray[np.uint8], after: NDArray[np.uint8]) -> bool:
    """Whether each colon joins two numbers, each comma two labels, and labels lead their lines."""
    joins_two = all(
        np.count_nonzero(before == mark)
        == np.count_nonzero(after == mark)
        == np.count_nonzero(kind == mark)
        for mark in (COLON, COMMA)
    )
    label = (before != COLON) & (after != COLON)
    return bool(
        joins_two
        and not ((before == COLON) & (after == COLON)).any()
        and label[(before == COMMA) | (after == COMMA)].all()
        and (before[label] != BLANK).all()
    )


def parse_lines(block: Block, source: Path) -> SparseRows:
    """Read a block line by line; DataError names the line of the first mistake."""
    label_ends, ends = [0], [0]
    labels: list[float] = []
    indices: list[float] = []
    values: list[float] = []
    lines = block.text.split(b"\n")[:-1]
    for line, content in enumerate(lines, block.first_line):
        try:
            _parse_line(content.decode("ascii", "replace"), labels, indices, values)
        except ValueError as error:
            raise DataError(f"{source}:{line}: {error}") from None
        label_ends.append(len(labels))
        ends.append(len(indices))
    return SparseRows(
        lines=np.arange(block.first_line, block.first_line + len(lines)),
        label_indptr=np.array(label_ends, np.int64),
        labels=np.array(labels, np.float64),
        indptr=np.array(ends, np.int64),
        indices=np.array(indices, np.int32),
        values=np.array(values, np.float32),
    )


def _parse_line(
    content: str, labels: list[float], indices: list[float], values: list[float]
) -> None:
    fields = content.split()
    if fields and ":" not in fields[0]:
        labels.extend(number(label) for label in fields.pop(0).split(","))
    for field in fields:
        index, colon, value = field.partition(":")
        if not colon:
            raise ValueError(f"expected index:value; got {quoted(field)}")
        indices.append(_index(index))
        values.append(number(value))


def _index(token: str) -> float:
    index = number(token)
    if index < 0:
        raise ValueError(f"a feature index cannot be negative; got {token}")
    if index > MAX_INDEX or index != int(index):
        raise ValueError(f"expected a whole feature index up to {MAX_INDEX}; got {token}")
    return index


def join(parts: Sequence[SparseRows]) -> SparseRows:
    """Put the rows of all blocks one after another."""
    lines, label_indptrs, labels, indptrs, indices, values = zip(*parts, strict=True)
    return SparseRows(
        lines=np.concatenate(lines),
        label_indptr=_join_indptrs(label_indptrs),
        labels=np.concatenate(labels),
        indptr=_join_indptrs(indptrs),
        indices=np.concatenate(indices),
        values=np.concatenate(values),
    )


def _join_indptrs(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    lengths = np.concatenate([np.diff(part) for part in parts])
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


def keep(rows: SparseRows, chosen: NDArray[np.bool_]) -> SparseRows:
    """Drop the rows that are not chosen[N]; these must be blank, without labels and features."""
    ends = np.concatenate(([True], chosen))
    return rows._replace(
        lines=rows.lines[chosen], label_indptr=rows.label_indptr[ends], indptr=rows.indptr[ends]
    )


def blank(rows: SparseRows) -> NDArray[np.bool_]:
    """Mark rows with neither labels nor features: bool[N]."""
    none: NDArray[np.bool_] = (np.diff(rows.indptr) == 0) & (np.diff(rows.label_indptr) == 0)
    return none


def ascending(rows: SparseRows, source: Path) -> SparseRows:
    """Sort the features of each row; one that occurs twice in a row is a DataError."""
    order = csr.ascending_order(rows.indptr, rows.indices)
    if order is not None:
        rows = rows._replace(indices=rows.indices[order], values=rows.values[order])
    repeated = np.flatnonzero(csr.repeats(rows.indptr, rows.indices))
    if len(repeated):
        line = rows.lines[csr.row_of(rows.indptr, repeated[0])]
        raise DataError(
            f"{source}:{line}: feature index {rows.indices[repeated[0]]} occurs twice in one row"
        )
    return rows


def label_lists(rows: SparseRows, source: Path) -> LabelLists:
    """Take labels as lists of indices from 0: sorted, and a label given twice kept once."""
    fits = (rows.labels >= 0) & (rows.labels <= MAX_INDEX) & (rows.labels == np.floor(rows.labels))
    if not fits.all():
        first = int(np.argmin(fits))
        line = rows.lines[csr.row_of(rows.label_indptr, first)]
        raise DataError(
            f"{source}:{line}: rows have lists of labels here (none or several in some row), so "
            f"a label must be a whole number from 0 on; got {rows.labels[first]:g}"
        )
    indptr, indices = rows.label_indptr, rows.labels.astype(np.int32)
    order = csr.ascending_order(indptr, indices)
    indices = indices if order is None else indices[order]
    once = ~csr.repeats(indptr, indices)
    return LabelLists(np.concatenate(([0], np.cumsum(once)))[indptr], indices[once])
