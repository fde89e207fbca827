""".npz files: NumPy arrays X and y, or the arrays of a scipy.sparse CSR matrix and y.

    X [N, F]                             dense, any real dtype (float32 only if that is exact)
    data, indices, indptr, shape         as written by scipy.sparse.save_npz (format csr)
    y or Y: [N] or [N, 1]                one label per row: numbers, text or booleans
            [N, C] of 0 and 1            lists of labels
    label_indptr, label_indices          lists of labels in CSR form

Labels may be missing (for prediction). Object arrays are rejected: nothing is ever unpickled.
"""

import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Inputs, RawInputs, csr_inputs, raw_inputs
from hogbatch.data.raw import (
    MAX_INDEX,
    LabelLists,
    LabelNames,
    RawSet,
    ReadOptions,
    named_labels,
)
from hogbatch.data.signatures import FIRST_BYTES, is_archive, not_arrays, not_text
from hogbatch.data.source import Source, not_data
from hogbatch.data.text import FLOAT32_LIMIT
from hogbatch.errors import DataError, UsageError
from hogbatch.machine import budget

FEWER = "use fewer rows, or a machine with more memory"
CSR_PARTS = ("data", "indices", "indptr", "shape")
# Errors of NumPy and zipfile for a damaged archive. RuntimeError is raised for encryption and for
# unknown compression, MemoryError for a header with a huge shape.
DAMAGE = (ValueError, EOFError, KeyError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
Arrays = Mapping[str, NDArray[Any]]
Scalar = TypeVar("Scalar", bound=np.generic)


def read(path: Source, options: ReadOptions) -> RawSet:
    """Read a .npz file; DataError names the missing or invalid array."""
    arrays = _open(path)
    try:
        inputs, features = _inputs(arrays)
        rows = len(inputs.dense) or len(inputs.indptr) - 1
        labels, names, lists, classes = _labels(arrays, rows)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None
    return RawSet(
        inputs, features, labels, lists, str(path), classes_hint=classes, label_names=names
    )


def _open(path: Source) -> dict[str, NDArray[Any]]:
    try:
        with path.open() as file:
            sizes = _sizes(file, path)
            budget.require(sum(sizes), f"the arrays of {path}", FEWER)
            with np.load(file, allow_pickle=False) as archive:
                members = {name: archive[name] for name in archive.files}
    except UsageError:  # a subclass of ValueError
        raise
    except DAMAGE as error:
        raise DataError(f"{path}: not an intact .npz file of plain arrays: {error}") from None
    return {
        n: a for n, a in members.items() if isinstance(a, np.ndarray)
    }  # other members are bytes


def _sizes(file: BinaryIO, path: Source) -> list[int]:
    """Sizes of an archive's members from its directory; no more than that is read of each."""
    start = file.read(FIRST_BYTES)
    if not is_archive(start) and (what := not_text(start)):
        raise not_data(path, what)
    with zipfile.ZipFile(file) as archive:
        if what := not_arrays(archive.namelist()):
            raise not_data(path, what)
        sizes = [member.file_size for member in archive.infolist()]
    file.seek(0)
    return sizes


def _inputs(arrays: Arrays) -> tuple[RawInputs, int]:
    if "X" in arrays:
        dense = _finite("X", arrays["X"], dimensions=2)
        if dense.dtype not in (np.float32, np.float64):
            budget.require(8 * dense.size, "X as float64", FEWER)
        inputs: RawInputs = raw_inputs(dense)
        rows, features = dense.shape
    elif all(part in arrays for part in CSR_PARTS):
        inputs, (rows, features) = _csr(arrays)
    else:
        raise ValueError(
            f"expected arrays X and y, or {', '.join(CSR_PARTS)} and y; "
            f"found {', '.join(arrays) or 'none'}"
        )
    if not rows or not features:
        raise ValueError(f"expected at least one row and one feature; got {rows} x {features}")
    return inputs, features


def _csr(arrays: Arrays) -> tuple[Inputs, tuple[int, int]]:
    layout = arrays.get("format", np.array(b"csr")).astype(np.str_)
    if layout != "csr":
        raise ValueError(f"expected a sparse matrix in csr format; got {layout} (use .tocsr())")
    shape = _whole("shape", arrays["shape"], np.int64, MAX_INDEX + 1)
    if shape.shape != (2,):
        raise ValueError(f"shape: expected 2 numbers; got {len(shape)}")
    rows, features = int(shape[0]), int(shape[1])
    indptr, indices = _lists(arrays, "indptr", "indices", rows)
    stored = _finite("data", arrays["data"], dimensions=1)
    budget.require(4 * stored.size, "data as float32", FEWER)
    values = stored.astype(np.float32)
    if len(values) != len(indices):
        raise ValueError(f"data: expected {len(indices)} values, as in indices; got {len(values)}")
    if indices.max(initial=-1) >= features:
        raise ValueError(f"indices: {indices.max()} is beyond the {features} features of shape")
    order = csr.ascending_order(indptr, indices)
    if order is not None:
        indices, values = indices[order], values[order]
    repeated = np.flatnonzero(csr.repeats(indptr, indices))
    if len(repeated):
        row = csr.row_of(indptr, repeated[0])
        raise ValueError(f"row {row} has feature {indices[repeated[0]]} twice (sum_duplicates())")
    return csr_inputs(indptr, indices, values), (rows, features)


def _labels(
    arrays: Arrays, rows: int
) -> tuple[NDArray[np.float64] | None, LabelNames, LabelLists | None, int]:
    """Find the labels: numbers, with their names if they are text or booleans, or lists.

    The last result is the number of distinct labels of lists, or 0 if unknown.
    """
    if "label_indptr" in arrays and "label_indices" in arrays:
        indptr, indices = _lists(arrays, "label_indptr", "label_indices", rows)
        order = csr.ascending_order(indptr, indices)
        indices = indices if order is None else indices[order]
        if csr.repeats(indptr, indices).any():
            raise ValueError("label_indices: a label occurs twice in one row")
        return None, (), LabelLists(indptr, indices), 0
    name = "Y" if "Y" in arrays and "y" not in arrays else "y"
    if name not in arrays:
        return None, (), None, 0
    labels = arrays[name]
    if labels.ndim == 2 and labels.shape[1] != 1 and len(labels) == rows:
        return None, (), *_lists_of_matrix(name, labels)
    if labels.size != rows:
        raise ValueError(f"{name}: expected labels for {rows} rows; got shape {labels.shape}")
    if labels.dtype.kind in "Ub":
        return *named_labels(labels.ravel()), None, 0
    _finite(name, labels.ravel(), dimensions=1)
    return labels.ravel().astype(np.float64), (), None, 0


def _lists_of_matrix(name: str, marks: NDArray[Any]) -> tuple[LabelLists, int]:
    if not np.isin(marks, (0, 1)).all():
        raise ValueError(f"{name}: expected a matrix of 0 and 1, or one column")
    rows, labels = np.nonzero(marks)
    indptr = np.searchsorted(rows, np.arange(len(marks) + 1))
    return LabelLists(indptr, labels.astype(np.int32)), marks.shape[1]


def _lists(
    arrays: Arrays, starts: str, members: str, rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Check the two index arrays of a CSR form."""
    indices = _whole(members, arrays[members], np.int32, MAX_INDEX)
    indptr = _whole(starts, arrays[starts], np.int64, len(indices))
    if len(indptr) != rows + 1 or indptr[0] != 0 or indptr[-1] != len(indices):
        raise ValueError(
            f"{starts}: expected {rows + 1} numbers from 0 to {len(indices)}, the length of "
            f"{members}; got {len(indptr)} from {indptr[:1]} to {indptr[-1:]}"
        )
    if (np.diff(indptr) < 0).any():
        raise ValueError(f"{starts}: expected numbers that never decrease")
    return indptr, indices


def _whole(name: str, array: NDArray[Any], kind: type[Scalar], largest: int) -> NDArray[Scalar]:
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected a 1-d array of integers; got {_form(array)}")
    if len(array) and (array.min() < 0 or array.max() > largest):
        raise ValueError(
            f"{name}: expected numbers from 0 to {largest}; got {array.min()} to {array.max()}"
        )
    return array.astype(kind)


def _finite(name: str, array: NDArray[Any], dimensions: int) -> NDArray[Any]:
    """Check that `array` has finite real numbers in the range of float32; return it unchanged."""
    if array.ndim != dimensions or array.dtype.kind not in "iufb":
        raise ValueError(f"{name}: expected {dimensions}-d real numbers; got {_form(array)}")
    largest = float(
        np.abs([array.min(initial=0), array.max(initial=0)]).max()
    )  # NaN if any value is NaN
    if not largest < FLOAT32_LIMIT:
        index = [int(i) for i in np.argwhere(~(np.abs(array) < np.float64(FLOAT32_LIMIT)))[0]]
        raise ValueError(
            f"{name}{index}: expected a finite number within float32; got {array[tuple(index)]}"
        )
    return array


def _form(array: NDArray[Any]) -> str:
    return f"{array.ndim}-d {array.dtype}"
