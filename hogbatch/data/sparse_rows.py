"""Arrays of sparse rows with labels, and operations on them, for libsvm and XMC text."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.raw import MAX_INDEX, LabelLists

Counts = tuple[int, int, int]  # of rows, labels and values


class SparseRows(NamedTuple):
    """Rows in the order of the file, with any number of labels per row."""

    lines: NDArray[np.int64]  # [N]
    label_indptr: NDArray[np.int64]  # [N + 1]
    labels: NDArray[np.float64]
    indptr: NDArray[np.int64]  # [N + 1]
    indices: NDArray[np.int32]  # minus the base of the format
    values: NDArray[np.float32]


TYPES: Final = np.int64, np.int64, np.float64, np.int64, np.int32, np.float32  # of `SparseRows`


class RowSummary(NamedTuple):
    """Properties of rows that were collected while parsing, to avoid another pass."""

    lowest: int = MAX_INDEX  # lowest index
    highest: int = -1  # highest index
    ascending: bool = True  # indices are strictly ascending within each row
    single: bool = True  # each row has one label
    listed: bool = True  # labels are indices and strictly ascending within each row


def sizes(counts: Counts) -> tuple[int, ...]:
    """The lengths of the arrays of these numbers of rows, labels and values."""
    rows, labels, values = counts
    return rows, rows + 1, labels, rows + 1, values, values


def view_of(buffers: SparseRows, counts: Counts) -> SparseRows:
    """View the first rows with these numbers of rows, labels and values."""
    arrays: tuple[NDArray[Any], ...] = buffers
    return SparseRows(*(own[:size] for own, size in zip(arrays, sizes(counts), strict=True)))


def allocate(counts: Counts) -> SparseRows:
    """Arrays of zeros for these numbers of rows, labels and values."""
    return SparseRows(*map(np.zeros, sizes(counts), TYPES))


def join(parts: Sequence[SparseRows]) -> SparseRows:
    """Concatenate the rows of all parts."""
    if len(parts) == 1:
        return parts[0]
    lines, _, labels, _, indices, values = map(np.concatenate, zip(*parts, strict=True))
    label_indptr = csr.joined([part.label_indptr for part in parts])
    indptr = csr.joined([part.indptr for part in parts])
    return SparseRows(lines, label_indptr, labels, indptr, indices, values)


def summary_of(rows: SparseRows, base: int) -> RowSummary:
    """Compute the summary of rows whose indptr arrays start at 0."""
    none = MAX_INDEX - base
    return RowSummary(
        lowest=int(rows.indices.min(initial=none)) + base,
        highest=int(rows.indices.max(initial=-1 - base)) + base,
        ascending=csr.ascends(rows.indptr, rows.indices),
        single=bool((np.diff(rows.label_indptr) == 1).all()),
        listed=bool(is_index(rows.labels).all())
        and csr.ascends(rows.label_indptr, rows.labels.astype(np.int32)),
    )


def is_index(labels: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which labels are indices: bool[n]."""
    valid: NDArray[np.bool_] = (labels >= 0) & (labels <= MAX_INDEX) & (labels == np.floor(labels))
    return valid


def keep(rows: SparseRows, chosen: NDArray[np.bool_]) -> SparseRows:
    """Copy the rows with chosen[N]."""
    taken = np.flatnonzero(chosen)
    label_indptr, labels = csr.positions(rows.label_indptr, taken)
    indptr, values = csr.positions(rows.indptr, taken)
    own = rows.labels[labels], indptr, rows.indices[values], rows.values[values]
    return SparseRows(rows.lines[taken], label_indptr, *own)


def label_lists(rows: SparseRows, summary: RowSummary) -> LabelLists:
    """Convert whole-number labels to lists of indices: sorted, without duplicates."""
    indptr, indices = rows.label_indptr, rows.labels.astype(np.int32)
    if summary.listed:
        return LabelLists(indptr, indices)
    order = csr.ascending_order(indptr, indices)
    indices = indices if order is None else indices[order]
    once = ~csr.repeats(indptr, indices)
    return LabelLists(np.concatenate(([0], np.cumsum(once)))[indptr], indices[once])
