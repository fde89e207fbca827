"""Arrays of rows: produced by readers, shared by the store and read by kernels.

Letters in shapes throughout the project: B rows of a batch, N rows of a set, F features, C classes
or labels, n stored values.
"""

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.sizes import SetSizes, longest

BLOCK_VALUES = 1 << 20
MAX_USUAL_VALUE = 1e15  # the squares of smaller values are far from overflowing


class Inputs(NamedTuple):
    """The features of N rows, dense or CSR; the arrays of the other form are empty."""

    dense: NDArray[np.float32]  # [N, F], or [0, 0] when sparse
    indptr: NDArray[np.int64]  # [N + 1], or [0] when dense
    indices: NDArray[np.int32]  # [n], ascending within a row
    values: NDArray[np.float32]  # [n]


class DoubleInputs(NamedTuple):
    """The features of N dense rows before scaling, in the form of :class:`Inputs`.

    Large offsets such as Unix seconds need float64 until the mean is subtracted.
    """

    dense: NDArray[np.float64]  # [N, F], C-contiguous
    indptr: NDArray[np.int64] = np.empty(0, np.int64)
    indices: NDArray[np.int32] = np.empty(0, np.int32)
    values: NDArray[np.float32] = np.empty(0, np.float32)


RawInputs: TypeAlias = Inputs | DoubleInputs  # produced by readers; kernels take Inputs


NO_WEIGHTS: Final = np.empty(0, np.float32)


class Labels(NamedTuple):
    """The labels of N rows: numbers, or CSR lists of label indices (multi-label).

    `values` holds the T targets of a row one after another for losses of numbers; 0 or 1 for binary
    losses, and the class index for softmax (exact in float32 up to 2^24 classes), with T = 1.
    `weights` multiply the loss of each row, and so its gradient and metrics; their mean over the
    training rows is 1.
    """

    values: NDArray[np.float32]  # [N * T], or [0] when multi-label
    indptr: NDArray[np.int64]  # [N + 1], or [0] unless multi-label
    indices: NDArray[np.int32]  # [n], ascending within a row
    weights: NDArray[np.float32] = NO_WEIGHTS  # [N], above 0; [0]: all are 1


@dataclass(frozen=True, slots=True)
class Examples:
    """N rows with their labels; `features` is F, which CSR arrays do not contain."""

    inputs: Inputs
    labels: Labels
    features: int

    @property
    def rows(self) -> int:
        """N."""
        return len(self.inputs.indptr) - 1 if self.sparse else len(self.inputs.dense)

    def read_only(self) -> "Examples":
        """The same rows in arrays that cannot be written, like those that workers train on.

        Numba compiles a kernel again for arrays that can be written.
        """
        inputs = Inputs(*map(read_only, self.inputs))
        labels = Labels(*map(read_only, self.labels))
        return Examples(inputs, labels, self.features)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        arrays: tuple[NDArray[Any], ...] = (*self.inputs, *self.labels)
        return sum(array.nbytes for array in arrays)

    @property
    def sizes(self) -> SetSizes:
        """The sizes of all arrays."""
        inputs, labels = self.inputs, self.labels
        return SetSizes(
            self.rows,
            self.features,
            self.sparse,
            len(inputs.indices),
            longest(inputs.indptr),
            len(labels.indptr) > 0,
            len(labels.indices),
            longest(labels.indptr),
            len(labels.weights) > 0,
            self.targets,
        )

    @property
    def targets(self) -> int:
        """T, the labels of a row that are not in lists; 1 for lists."""
        return max(len(self.labels.values) // max(self.rows, 1), 1)

    @property
    def absent_features(self) -> NDArray[np.intp]:
        """The features of CSR rows that no row has, ascending; none of dense rows."""
        if not self.sparse:
            return np.empty(0, np.intp)
        absent = np.ones(self.features, np.bool_)
        for start in range(0, len(self.inputs.indices), BLOCK_VALUES):  # they may be on disk
            absent[self.inputs.indices[start : start + BLOCK_VALUES]] = False
        return np.flatnonzero(absent)

    @property
    def mean_square(self) -> float:
        """Mean over the rows of the squared norm of their features."""
        stored = self.inputs.values if self.sparse else self.inputs.dense.reshape(-1)
        with np.errstate(over="ignore"):
            squares = float(np.dot(stored, stored))
            if math.isinf(squares):  # leave out a few extreme values
                usual = np.where(np.abs(stored) < MAX_USUAL_VALUE, stored, 0)
                squares = float(np.dot(usual, usual))
        return squares / self.rows

    @property
    def sparse(self) -> bool:
        """Whether the inputs are in CSR form."""
        return len(self.inputs.indptr) > 0


def count(inputs: RawInputs) -> int:
    """N, the number of rows."""
    return max(len(inputs.indptr) - 1, len(inputs.dense))


def dense_inputs(dense: NDArray[np.float32]) -> Inputs:
    """Wrap dense[N, F] (float32, C-contiguous; not copied)."""
    return Inputs(dense, np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))


def raw_inputs(dense: NDArray[Any]) -> RawInputs:
    """Wrap dense[N, F] of any real dtype without losing precision.

    The result is float32 if that represents every value of the dtype exactly, else float64. The
    array is copied only if its dtype or memory order requires it.
    """
    if np.can_cast(dense.dtype, np.float32):
        return dense_inputs(np.ascontiguousarray(dense, np.float32))
    return DoubleInputs(np.ascontiguousarray(dense, np.float64))


def csr_inputs(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], values: NDArray[np.float32]
) -> Inputs:
    """Wrap a CSR matrix (not copied)."""
    return Inputs(np.empty((0, 0), np.float32), indptr, indices, values)


def single_labels(values: NDArray[np.float32]) -> Labels:
    """Wrap one label per row, values[N] (not copied)."""
    return Labels(values, np.empty(0, np.int64), np.empty(0, np.int32))


def multi_labels(indptr: NDArray[np.int64], indices: NDArray[np.int32]) -> Labels:
    """Wrap lists of label indices (not copied)."""
    return Labels(np.empty(0, np.float32), indptr, indices)


def read_only(array: Any) -> NDArray[Any]:
    """A view of an array that cannot be written."""
    view: NDArray[Any] = array.view()
    view.flags.writeable = False
    return view
