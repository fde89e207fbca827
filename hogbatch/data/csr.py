"""Operations on CSR arrays: row lookup, sorting, selecting rows, conversion to and from dense."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs, RawInputs, csr_inputs, dense_inputs, raw_inputs
from hogbatch.machine.budget import require

Pointers = NDArray[np.int64]

BLOCK: Final = 1 << 16  # indices that are compared at a time, in memory that stays in cache


def row_of(indptr: Pointers, position: int) -> int:
    """The row that contains stored value number `position`."""
    return int(np.searchsorted(indptr, position, side="right")) - 1


def rows_of(indptr: Pointers) -> Pointers:
    """The row of each stored value: int64[n]."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


def ascending_order(indptr: Pointers, indices: NDArray[np.int32]) -> Pointers | None:
    """Positions in the order in which indices ascend within rows; None if they already do."""
    falls = indices[1:] < indices[:-1]
    starts = indptr[1:-1]  # indices may decrease between rows
    falls[starts[(starts > 0) & (starts < len(indices))] - 1] = False
    return np.lexsort((indices, rows_of(indptr))) if falls.any() else None


def repeats(indptr: Pointers, indices: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Mark values whose index equals that of the previous value in the same row: bool[n].

    Indices must ascend within rows.
    """
    same = np.zeros(len(indices), np.bool_)
    same[1:] = indices[1:] == indices[:-1]
    same[indptr[:-1][indptr[:-1] < len(indices)]] = False
    return same


def ascends(indptr: Pointers, indices: NDArray[np.int32]) -> bool:
    """Whether the indices are strictly ascending within each row."""
    starts = indptr[:-1][indptr[1:] > indptr[:-1]][1:]  # of rows that follow one with values
    falls = -np.count_nonzero(indices[starts] <= indices[starts - 1])  # permitted between rows
    for start in range(1, len(indices), BLOCK):
        own = indices[start : start + BLOCK]
        falls += np.count_nonzero(own <= indices[start - 1 :][: len(own)])
    return bool(falls == 0)


def joined(parts: Sequence[Pointers]) -> Pointers:
    """The indptr of the rows of several matrices, one after another."""
    return np.concatenate([[0], np.concatenate([np.diff(each) for each in parts])]).cumsum()


def positions(indptr: Pointers, rows: Pointers) -> tuple[Pointers, Pointers]:
    """The indptr of `rows` alone, and the positions at which their values are stored."""
    lengths = indptr[rows + 1] - indptr[rows]
    taken = np.concatenate(([0], np.cumsum(lengths)))
    return taken, np.arange(taken[-1]) + np.repeat(indptr[rows] - taken[:-1], lengths)


def cells(indptr: Pointers, rows: Pointers) -> tuple[Pointers, Pointers]:
    """The place in `rows` of each value of these rows, and the position at which it is stored."""
    taken, places = positions(indptr, rows)
    return rows_of(taken), places


def rows(inputs: RawInputs, chosen: Pointers | None) -> RawInputs:
    """Copy the rows `chosen` of dense or CSR inputs, in that order; None: all, not copied."""
    if chosen is None:
        return inputs
    if not len(inputs.indptr):
        return raw_inputs(inputs.dense[chosen])
    indptr, places = positions(inputs.indptr, chosen)
    return csr_inputs(indptr, inputs.indices[places], inputs.values[places])


def below(inputs: RawInputs, features: int) -> Inputs:
    """Keep the values of the first `features` features of CSR inputs."""
    kept = inputs.indices < features
    indptr = np.concatenate(([0], np.cumsum(kept)))[inputs.indptr]
    return csr_inputs(indptr, inputs.indices[kept], inputs.values[kept])


def to_dense(inputs: RawInputs, features: int) -> RawInputs:
    """CSR inputs as dense[N, features], dense ones as they are; UsageError without memory."""
    if not len(inputs.indptr):
        return inputs
    count = len(inputs.indptr) - 1
    purpose = f"{count:,} sparse rows as dense rows of {features:,} features"
    require(4 * count * features + 8 * len(inputs.indices), purpose, "use fewer rows")
    dense = np.zeros((count, features), np.float32)
    dense[rows_of(inputs.indptr), inputs.indices] = inputs.values
    return dense_inputs(dense)


def to_csr(inputs: RawInputs) -> Inputs:
    """Dense inputs as CSR with the nonzero values as float32, CSR inputs as they are."""
    if len(inputs.indptr):
        return csr_inputs(*inputs[1:])
    owners, columns = np.nonzero(inputs.dense)
    indptr = np.searchsorted(owners, np.arange(len(inputs.dense) + 1))
    values = inputs.dense[owners, columns].astype(np.float32, copy=False)
    return csr_inputs(indptr, columns.astype(np.int32), values)
