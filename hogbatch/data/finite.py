"""Checks for non-finite and out-of-range numbers in arrays of the caller, with their position."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Inputs, RawInputs
from hogbatch.errors import UsageError

BLOCK_VALUES = 1 << 18  # numbers checked at a time: a block stays in cache


def first_not_finite(values: NDArray[Any]) -> int | None:
    """Position, in C order, of the first NaN or infinite number in `values`; None if none.

    `values` may have any shape and float dtype; at most one block is copied.
    """
    step = max(1, BLOCK_VALUES // max(1, values[:1].size))  # entries along the first axis
    for start in range(0, len(values), step):
        finite = np.isfinite(values[start : start + step])
        if not finite.all():
            return start * values[:1].size + int(np.argmin(finite))
    return None


def expect_finite(matrix: NDArray[Any]) -> None:
    """UsageError with row, column and value of the first non-finite number in matrix[N, F]."""
    if matrix.dtype.kind == "f" and (at := first_not_finite(matrix)) is not None:
        row, column = np.unravel_index(at, matrix.shape)
        raise _not_finite(int(row), int(column), matrix[row, column])


def expect_finite_csr(indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any]) -> None:
    """The same check for the stored values of a CSR matrix."""
    if values.dtype.kind == "f" and (at := first_not_finite(values)) is not None:
        raise _not_finite(csr.row_of(indptr, at), int(indices[at]), values[at])


def expect_in_range(given: RawInputs, used: Inputs, first_row: int) -> None:
    """UsageError for the first number beyond the range of float32 in the scaled rows `used`.

    `given` are the same rows before scaling; the first of them is row `first_row` of the caller.
    """
    values = used.values if len(used.indptr) else used.dense
    if (at := first_not_finite(values)) is None:
        return
    if len(used.indptr):
        row, column = csr.row_of(used.indptr, at), int(used.indices[at])
    else:
        row, column = (int(each) for each in np.unravel_index(at, used.dense.shape))
    if not len(given.indptr):
        value = given.dense[row, column]
    else:
        stored = slice(given.indptr[row], given.indptr[row + 1])
        value = given.values[stored][given.indices[stored] == column].sum()
    raise UsageError(
        f"row {first_row + row}, column {column}: {value:g} is beyond the range of float32 "
        "(3.4e38 after scaling): remove the row, or scale the column"
    )


def _not_finite(row: int, column: int, value: Any) -> UsageError:
    return UsageError(
        f"expected finite numbers; got {value:g} in row {row}, column {column} (counted from 0): "
        "fill in missing values, or remove the row"
    )
