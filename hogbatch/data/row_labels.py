"""Labels of the caller: one number, text or boolean per row, or a list of label numbers per row.

y    [N] or [N, 1]: numbers, text or booleans; missing ones become NaN or NO_LABEL
     [N, C] of 0 and 1, dense or sparse; or N lists of label numbers
     [N, T] of other numbers, T for each row
"""

from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr, frames
from hogbatch.data.order import RowNumbers
from hogbatch.data.raw import (
    MAX_INDEX,
    MAX_WHOLE,
    NO_LABEL,
    LabelLists,
    LabelNames,
    are_exact,
    is_missing,
    named_labels,
)
from hogbatch.errors import UsageError


class RowLabels(NamedTuple):
    """Labels of N rows, as in :class:`RawSet`."""

    labels: NDArray[Any] | None = None
    label_names: LabelNames = ()
    label_lists: LabelLists | None = None
    classes_hint: int = 0  # number of labels of a matrix of 0 and 1, else 0

    def of_rows(self, rows: RowNumbers) -> "RowLabels":
        """The labels of some rows."""
        labels, lists = self.labels, self.label_lists
        if labels is not None:
            return self._replace(labels=labels[rows])
        assert lists is not None
        indptr, positions = csr.positions(lists.indptr, rows)
        return self._replace(label_lists=LabelLists(indptr, lists.indices[positions]))


def labels_of(values: Any, rows: int, name: str) -> RowLabels:
    """The labels of `rows` rows; UsageError for another length, form or value."""
    if values is None:
        raise UsageError(f"{name} is missing: expected the labels of {rows} rows")
    if hasattr(values, "tocsr"):
        return _of_sparse(values.tocsr(), rows, name)
    if frames.is_frame(values):
        own = frames.columns_of(values).cells
        values = own[0] if len(own) == 1 else frames.matrix_of(values, name)
    try:
        labels = np.asarray(values)
    except ValueError:  # lists of different lengths
        return _of_lists(values, rows, name)
    if isinstance(values, list | tuple) and labels.dtype.kind == "f" and not are_exact(labels):
        labels = np.array(values, object)  # NumPy rounds whole numbers beyond its integer types
    if not labels.ndim or len(labels) != rows:
        got = f"{len(labels)} labels" if labels.ndim else "one value"
        raise UsageError(f"{name}: expected the labels of {rows} rows; got {got}")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels.ravel()
    if labels.ndim == 1 and not is_list(labels[0]):
        return _of_values(labels, name)
    if labels.ndim == 2 and np.isin(labels, (0, 1)).all():
        marked, columns = np.nonzero(labels)
        indptr = np.searchsorted(marked, np.arange(rows + 1))
        lists = LabelLists(indptr, columns.astype(np.int32))
        return RowLabels(label_lists=lists, classes_hint=labels.shape[1])
    given = isinstance(values, list | tuple)
    if labels.ndim == 2 and labels.dtype.kind in ("f" if given else "iuf"):
        return RowLabels(_finite(labels.astype(np.float64), name))
    if labels.ndim == 1 or given:
        return _of_lists(values, rows, name)
    raise UsageError(
        f"{name}: expected one label per row, lists of labels, or a matrix of numbers; got an "
        f"array of {labels.dtype} and shape {labels.shape}"
    )


def _of_values(labels: NDArray[Any], name: str) -> RowLabels:
    """One number, text or boolean per row; whole numbers that float64 cannot hold are text.

    NaN where it is missing; NO_LABEL in whole numbers.
    """
    rows = np.flatnonzero(~_missing(labels))
    if not len(rows):
        raise UsageError(f"{name}: expected labels; got none in any row")
    values, found = labels[rows], np.full(len(labels), np.nan)
    if labels.dtype.kind in "OT":
        values = _of_one_kind(values, rows, name)
    if values.dtype.kind in "iu":
        if are_exact(values):
            whole = np.full(len(labels), NO_LABEL)
            whole[rows] = values
            return RowLabels(whole)
        values = values.astype(np.str_)
    if values.dtype.kind in "Ub":
        found[rows], names = named_labels(values)
        return RowLabels(found, names)
    if values.dtype.kind != "f":
        raise UsageError(f"{name}: expected numbers, text or booleans; got {values.dtype}")
    found[rows] = values
    return RowLabels(_finite(found, name))


def _finite(labels: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """`labels`[N, ...]; UsageError for infinite ones."""
    if len(infinite := np.argwhere(np.isinf(labels))):
        row, label = infinite[0, 0], labels[tuple(infinite[0])]
        raise UsageError(
            f"{name}: expected finite labels; got {label:g} in row {row} (counted from 0)"
        )
    return labels


def _missing(labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each row has no label: None, NaN, NaT or pandas.NA."""
    if labels.dtype.kind == "f":
        missing: NDArray[np.bool_] = np.isnan(labels)
        return missing
    if labels.dtype.kind not in "OT":
        return np.zeros(len(labels), np.bool_)
    return np.array([is_missing(each) for each in labels.tolist()], np.bool_)


def _of_one_kind(labels: NDArray[Any], rows: NDArray[np.int64], name: str) -> NDArray[Any]:
    """An array of objects, the labels of `rows`, as an array of text, booleans or numbers."""
    objects = labels.tolist()
    kinds = [_kind_of(each) for each in objects]
    for place, (row, kind) in enumerate(zip(rows, kinds, strict=True)):
        if kind is None:
            raise UsageError(
                f"{name}: expected a number, text or a boolean; got {objects[place]!r} in row "
                f"{row} (counted from 0)"
            )
        if kind is not kinds[0]:
            raise UsageError(
                f"{name}: expected labels of one kind; got {objects[0]!r} in row {rows[0]} "
                f"and {objects[place]!r} in row {row} (counted from 0)"
            )
    if kinds[0] in (bool, str):
        return np.array(objects)
    whole = not any(isinstance(each, float | np.floating) or each % 1 for each in objects)
    if whole and max(map(abs, objects)) >= MAX_WHOLE:
        return np.array([str(int(each)) for each in objects])
    numbers = np.array(objects)
    return numbers.astype(np.float64) if numbers.dtype.kind == "O" else numbers


def _kind_of(label: Any) -> type | None:
    """The kind of a label: text, boolean or number; None for another object."""
    if isinstance(label, bool | np.bool_):
        return bool
    return next((kind for kind in (str, Real, Decimal) if isinstance(label, kind)), None)


def is_list(value: Any) -> bool:
    """Whether `value` holds the labels of one row."""
    return isinstance(value, list | tuple | set | frozenset | np.ndarray)


def _of_lists(values: Any, rows: int, name: str) -> RowLabels:
    """A list of label numbers per row."""
    lists = [sorted(each) if is_list(each) else each for each in values]
    if len(lists) != rows:
        raise UsageError(f"{name}: expected the labels of {rows} rows; got {len(lists)}")
    for row, each in enumerate(lists):
        numbers = isinstance(each, list) and all(
            isinstance(label, int | np.integer) and 0 <= label <= MAX_INDEX for label in each
        )
        if not numbers or len(set(each)) < len(each):
            raise UsageError(
                f"{name}: expected lists of different whole numbers from 0; got {each!r} in row "
                f"{row} (counted from 0)"
            )
    indptr = np.cumsum([0, *map(len, lists)])
    indices = np.array([n for each in lists for n in each], np.int32)
    return RowLabels(label_lists=LabelLists(indptr, indices))


def _of_sparse(marks: Any, rows: int, name: str) -> RowLabels:
    """A CSR matrix of 0 and 1."""
    if marks.shape[0] != rows:
        raise UsageError(f"{name}: expected the labels of {rows} rows; got {marks.shape[0]}")
    marks = marks.copy()
    marks.sum_duplicates()
    marks.eliminate_zeros()
    if (marks.data != 1).any():
        raise UsageError(f"{name}: expected a sparse matrix of 0 and 1; got {marks.data.max()}")
    lists = LabelLists(marks.indptr.astype(np.int64), marks.indices.astype(np.int32))
    return RowLabels(label_lists=lists, classes_hint=marks.shape[1])
