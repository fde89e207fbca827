"""Arrays of the caller as a :class:`RawSet`: features, labels and weights of rows.

X    a matrix [N, F] of any real dtype, a list of lists, a SciPy sparse matrix of any format,
     or a data frame or dictionary of columns of numbers (see `frames`)
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.backbone import Backbone, show_shape
from hogbatch.config.backbone_layers import Embedding
from hogbatch.config.layers import Shape
from hogbatch.data import csr, frames
from hogbatch.data.batch import Inputs, RawInputs, count, csr_inputs, dense_inputs, raw_inputs
from hogbatch.data.raw import MAX_INDEX, MAX_WHOLE, RawSet, are_exact
from hogbatch.data.row_labels import RowLabels, labels_of
from hogbatch.data.text import FLOAT32_LIMIT
from hogbatch.data.weights import used_rows
from hogbatch.errors import UsageError

BLOCK_VALUES = 1 << 18  # numbers checked at a time: a block stays in cache


def raw_set(
    X: Any,
    y: Any = None,
    weights: Any = None,
    *,
    suffix: str = "",
    labels: Callable[[int], RowLabels] | None = None,
    known: Sequence[str] = (),
) -> RawSet:
    """The rows of a matrix `X` with labels `y` and `weights`[N].

    In messages, the names of `X` and `y` end in `suffix`. `labels`, if given, returns the labels
    of N rows in place of `y`. For `known` see `numbers_of`. UsageError for other shapes, lengths
    and values.
    """
    name = f"X{suffix}"
    inputs, features = numbers_of(X, 0, name, known)
    if not (rows := count(inputs)) or not features:
        raise UsageError(f"{name}: expected a row and a feature; got {rows} x {features}")
    _expect_in_float32(inputs, name)
    inputs = inputs._replace(values=np.asarray(inputs.values, np.float32))  # as read from files
    return labelled_set(inputs, features, y, weights, suffix, labels)


def labelled_set(
    inputs: RawInputs,
    features: int,
    y: Any,
    weights: Any,
    suffix: str,
    labels: Callable[[int], RowLabels] | None = None,
) -> RawSet:
    """The rows `inputs`, F = `features`, with labels and weights as in `raw_set`."""
    rows = count(inputs)
    own = labels_of(y, rows, f"y{suffix}") if labels is None else labels(rows)
    kept, used = used_rows(weights, rows)
    if kept is not None:
        inputs, own = csr.rows(inputs, kept), own.of_rows(kept)
    source = f"X{suffix}, y{suffix}"
    return RawSet(inputs, features, source=source, weights=used, **own._asdict())


def flat_rows(rows: Any, shape: Shape = ()) -> Any:
    """Arrays of pictures or sequences, [N, H, W], [N, H, W, C] or [N, T, F], as a matrix [N, F].

    Anything else is returned as it is. UsageError unless each row has the `shape`, if it is given;
    sizes of 1 are not compared.
    """
    if not isinstance(rows, np.ndarray) or rows.ndim not in (3, 4):
        return rows
    own = rows.shape[1:]
    if shape and [n for n in own if n > 1] != [n for n in shape if n > 1]:
        raise UsageError(f"expected rows of shape {show_shape(shape)}; got {show_shape(own)}")
    return rows.reshape(len(rows), math.prod(own))


def expect_ids(rows: RawInputs, backbone: Backbone | None, where: str) -> None:
    """UsageError for the first number of `rows` that an embedding has no vector for."""
    if backbone is None or not isinstance(first := backbone.layers[0], Embedding):
        return
    x = rows.dense
    if (good := (x >= 0) & (x < first.ids) & (x == np.floor(x))).all():
        return
    row, column = divmod(int(np.argmin(good)), x.shape[1])
    raise UsageError(
        f"{where}: {first} expects whole numbers from 0 to {first.ids - 1}; got "
        f"{x[row, column]:g} in row {row}, column {column} (counted from 0)"
    )


def is_sparse(rows: Any) -> bool:
    """Whether `rows` are a sparse matrix, or an object with the arrays of the CSR form."""
    return hasattr(rows, "tocsr") or hasattr(rows, "indptr")


def numbers_of(
    rows: Any, features: int, name: str, known: Sequence[str] = ()
) -> tuple[RawInputs, int]:
    """The features of `rows`, without loss of precision if dense, and F.

    The columns of a data frame are matched to the `known` names of features, if there are any. An
    object with CSR arrays and without a shape has F = `features`.
    """
    if is_sparse(rows):
        return csr_of(rows), int(getattr(rows, "shape", (0, features))[-1])
    framed = frames.is_frame(rows)
    dense = frames.matrix_of(rows, name, known) if framed else matrix_of(rows)
    return raw_inputs(dense), dense.shape[1]


def csr_of(matrix: Any) -> Inputs:
    """A sparse matrix of any format, or an object with the arrays of the CSR form.

    The values may stay float64, because scaling comes before rounding. UsageError for a value that
    is not finite.
    """
    if hasattr(matrix, "tocsr"):
        matrix = matrix.tocsr()
    if (most := int(np.max(matrix.indices, initial=0))) > MAX_INDEX:
        raise UsageError(f"expected feature numbers up to {MAX_INDEX}; got {most}")
    parts = (np.asarray(each) for each in (matrix.indptr, matrix.indices, matrix.data))
    _expect_finite(csr_inputs(*parts))
    if not getattr(matrix, "has_canonical_format", True):  # kernels require ascending indices
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return csr_inputs(
        np.ascontiguousarray(matrix.indptr, np.int64),
        np.ascontiguousarray(matrix.indices, np.int32),
        _floats(matrix.data),
    )


def matrix_of(values: Any) -> NDArray[Any]:
    """A matrix [N, F] of finite numbers as float32 or float64; UsageError for anything else."""
    try:
        matrix = np.asarray(values)
        if matrix.dtype.kind not in "biuf":
            matrix = matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise UsageError(f"expected a matrix of numbers; {error}") from None
    if matrix.ndim != 2:
        raise UsageError(f"expected a matrix [rows, features]; got shape {matrix.shape}")
    _expect_finite(dense_inputs(matrix))
    return _floats(matrix)


def _floats(numbers: Any) -> NDArray[Any]:
    """Convert to float32 or float64 without losing precision."""
    found = np.asarray(numbers)
    narrow = np.can_cast(found.dtype, np.float32)
    with np.errstate(over="ignore"):  # `expect_in_range` reports values that overflow
        return np.ascontiguousarray(found, np.float32 if narrow else np.float64)


def _expect_in_float32(inputs: RawInputs, name: str) -> None:
    """UsageError for the first number of training rows beyond the range of float32."""
    values = _numbers_of(inputs)
    largest = max(abs(values.min(initial=0)), values.max(initial=0))
    if values.dtype == np.float32 or largest < FLOAT32_LIMIT:
        return
    at = int(np.argmax(np.abs(values.ravel()) >= FLOAT32_LIMIT))
    row, column = _place(inputs, at)
    raise UsageError(
        f"{name}: expected numbers within float32; got {values.ravel()[at]:g} in row {row}, column "
        f"{column} (counted from 0)"
    )


def _numbers_of(inputs: RawInputs) -> NDArray[Any]:
    """The stored values of CSR inputs[n], or dense inputs[N, F]."""
    return inputs.values if len(inputs.indptr) else inputs.dense


def _place(inputs: RawInputs, at: int) -> tuple[int, int]:
    """Row and column of number `at`, in C order, of `_numbers_of(inputs)`."""
    if len(inputs.indptr):
        return csr.row_of(inputs.indptr, at), int(inputs.indices[at])
    row, column = divmod(at, inputs.dense.shape[1])
    return int(row), int(column)


def _first_not_finite(values: NDArray[Any]) -> int | None:
    """Position, in C order, of the first NaN or infinite number in `values`; None if none.

    `values` may have any shape and float dtype; at most one block is copied.
    """
    step = max(1, BLOCK_VALUES // max(1, values[:1].size))  # entries along the first axis
    for start in range(0, len(values), step):
        finite = np.isfinite(values[start : start + step])
        if not finite.all():
            return start * values[:1].size + int(np.argmin(finite))
    return None


def _expect_finite(inputs: RawInputs) -> None:
    """UsageError for the first number that is not finite, or whole and not exact in float64."""
    values = _numbers_of(inputs)
    if values.dtype.kind in "iu" and not are_exact(values):
        large = (values <= -MAX_WHOLE) | (values >= MAX_WHOLE)
        row, column = _place(inputs, first := int(np.argmax(large.ravel())))
        raise UsageError(
            "expected whole numbers that float64 can hold, below 2^53; got "
            f"{values.ravel()[first]} in row {row}, column {column} (counted from 0): leave the "
            "column out, or give a data frame, in which it is a category"
        )
    if values.dtype.kind == "f" and (at := _first_not_finite(values)) is not None:
        row, column = _place(inputs, at)
        raise UsageError(
            f"expected finite numbers; got {values.ravel()[at]:g} in row {row}, column {column} "
            "(counted from 0): fill in missing values, or remove the row"
        )


def expect_in_range(unscaled: RawInputs, used: Inputs, first_row: int) -> None:
    """UsageError for the first number beyond the range of float32 in the scaled rows `used`.

    `unscaled` are the same rows before scaling; the first of them is row `first_row` of the caller.
    """
    if (at := _first_not_finite(_numbers_of(used))) is None:
        return
    row, column = _place(used, at)
    if not len(unscaled.indptr):
        value = unscaled.dense[row, column]
    else:
        stored = slice(unscaled.indptr[row], unscaled.indptr[row + 1])
        value = unscaled.values[stored][unscaled.indices[stored] == column].sum()
    raise UsageError(
        f"row {first_row + row}, column {column}: {value:g} is beyond the range of float32 "
        "(3.4e38 after scaling): remove the row, or scale the column"
    )
