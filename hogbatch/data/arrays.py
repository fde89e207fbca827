""".npz files: NumPy arrays X and y, or the arrays of a scipy.sparse CSR matrix and y.

    X [N, F]                             dense, any real dtype (float32 only if that is exact)
    X [N, H, W], [N, H, W, C], [N, T, F] pictures or sequences: rows of H W C or T F features
    data, indices, indptr, shape         as written by scipy.sparse.save_npz (format csr)
    y or Y: [N] or [N, 1]                one label per row: numbers, text or booleans
            [N, C] of 0 and 1            lists of labels
    label_indptr, label_indices          lists of labels in CSR form

Labels may be missing (for prediction). Object arrays are rejected: nothing is ever unpickled.
"""

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.memory import flat_rows, is_sparse, raw_set
from hogbatch.data.raw import MAX_INDEX, LabelLists, RawSet, ReadOptions
from hogbatch.data.row_labels import RowLabels, labels_of
from hogbatch.data.signatures import FIRST_BYTES, is_archive, not_arrays, not_text
from hogbatch.data.source import Source, not_data
from hogbatch.data.table.given import training_set
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
    """Read a .npz file; DataError names the missing or invalid array.

    A dense matrix is a table whose columns have no names.
    """
    return rows_of(_open(path), path, options)


def rows_of(arrays: Arrays, path: Source, options: ReadOptions) -> RawSet:
    """The rows of the `arrays` of a file; DataError names the missing or invalid array."""
    labels = partial(_labels, arrays if options.labels else {})
    try:
        features = _features(arrays)
        weights = _weights(arrays, options.weight)
        if is_sparse(features) or options.table is None:
            if options.table is not None and options.table.given:
                raise ValueError("--drop, --categorical, --numeric and --text need a dense matrix")
            raw = raw_set(features, weights=weights, labels=labels)
        else:
            raw = training_set(features, None, weights, options.table, labels_of_rows=labels)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None
    return replace(raw, source=str(path), shape=arrays["X"].shape[1:] if "X" in arrays else ())


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
    # Members that are not arrays are bytes.
    return {name: array for name, array in members.items() if isinstance(array, np.ndarray)}


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


def _features(arrays: Arrays) -> Any:
    """The matrix X, or a matrix in CSR form."""
    if "X" in arrays:
        dense = arrays["X"]
        if dense.dtype not in (np.float32, np.float64):
            budget.require(8 * dense.size, "X as float64", FEWER)
        return flat_rows(dense)
    if all(part in arrays for part in CSR_PARTS):
        return _csr(arrays)
    raise ValueError(
        f"expected arrays X and y, or {', '.join(CSR_PARTS)} and y; "
        f"found {', '.join(arrays) or 'none'}"
    )


def _csr(arrays: Arrays) -> SimpleNamespace:
    """A matrix with the attributes of a CSR matrix of SciPy."""
    layout = arrays.get("format", np.array(b"csr")).astype(np.str_)
    if layout != "csr":
        raise ValueError(f"expected a sparse matrix in csr format; got {layout} (use .tocsr())")
    shape = _whole("shape", arrays["shape"], np.int64, MAX_INDEX + 1)
    if shape.shape != (2,):
        raise ValueError(f"shape: expected 2 numbers; got {len(shape)}")
    rows, features = int(shape[0]), int(shape[1])
    indptr, indices = _lists(arrays, "indptr", "indices", rows)
    values = arrays["data"]
    if values.dtype != np.float32:
        budget.require(4 * values.size, "data as float32", FEWER)
    if values.ndim != 1 or values.dtype.kind not in "iufb":
        raise ValueError(f"data: expected 1-d real numbers; got {_form(values)}")
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
    return SimpleNamespace(indptr=indptr, indices=indices, data=values, shape=(rows, features))


def _weights(arrays: Arrays, name: str | None) -> NDArray[Any] | None:
    """The array `name` with the weights of the rows; None without a name."""
    if name is None:
        return None
    if name not in arrays:
        known = ", ".join(arrays)
        raise ValueError(f"expected an array {name!r} with the weights of the rows; got {known}")
    return arrays[name]


def _labels(arrays: Arrays, rows: int) -> RowLabels:
    if "label_indptr" in arrays and "label_indices" in arrays:
        indptr, indices = _lists(arrays, "label_indptr", "label_indices", rows)
        order = csr.ascending_order(indptr, indices)
        indices = indices if order is None else indices[order]
        if csr.repeats(indptr, indices).any():
            raise ValueError("label_indices: a label occurs twice in one row")
        return RowLabels(label_lists=LabelLists(indptr, indices))
    name = "Y" if "Y" in arrays and "y" not in arrays else "y"
    return labels_of(arrays[name], rows, name) if name in arrays else RowLabels()


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


def _form(array: NDArray[Any]) -> str:
    return f"{array.ndim}-d {array.dtype}"
