"""Tables given in Python, with NumPy alone: data frames or dictionaries of columns, and labels."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.data import csr
from hogbatch.data.batch import Inputs, RawInputs, dense_inputs
from hogbatch.data.frames import columns_of, keys_of
from hogbatch.data.memory import RowLabels, labels_of, weights_of
from hogbatch.data.raw import Columns, RawSet
from hogbatch.data.table.columns import CategoryColumn, Column, DateColumn, NumberColumn, Table
from hogbatch.data.table.encoding import TableEncoding
from hogbatch.data.table.kinds import TableOptions, inspect
from hogbatch.errors import DataError, UsageError

SOURCE = "the data frame"


def training_set(X: Any, y: Any, weights: Any, options: TableOptions) -> RawSet:
    """A training table `X` with labels `y`[N] and `weights`[N], to be encoded after the split.

    UsageError or DataError for columns, lengths and values that cannot be used.
    """
    table = table_of(X)
    if not table.rows:
        raise UsageError("X: expected a row; got none")
    labels = labels_of(y, table.rows, "y")
    name, label = _label_name(y, table.names), len(table.names)
    columns = {**table.columns, label: _label_column(labels, table.rows)}
    inspected = inspect(replace(table, names=(*table.names, name), columns=columns), options, label)
    if not inspected.kinds:
        raise DataError(f"X: no column can be used as a feature; {inspected.note}")
    for each in inspected.unexpected:
        raise DataError(f"{table.locate(int(each.rows[0]))}: {each.complaint}")
    return RawSet(
        inputs=dense_inputs(np.empty((table.rows, 0), np.float32)),
        features=0,
        labels=labels.labels,
        label_lists=labels.lists,
        source="X, y",
        classes_hint=labels.outputs,
        columns=Columns((), None, label),
        notes=(inspected.note,),
        label_names=labels.names,
        table=inspected,
        weights=None if weights is None else weights_of(weights, table.rows),
    )


def test_set(X: Any, y: Any, encoding: TableEncoding) -> RawSet:
    """A later table `X` with labels `y`[N], encoded; its columns are matched by name."""
    table = table_of(X)
    labels = labels_of(y, table.rows, "y_test")
    return RawSet(
        inputs=encoding.transform(encoding.adapted(table)),
        features=encoding.features,
        labels=labels.labels,
        label_lists=labels.lists,
        source="X_test, y_test",
        classes_hint=labels.outputs,
        label_names=labels.names,
    )


def _label_name(y: Any, names: tuple[str, ...]) -> str:
    """The name of the labels, if they are a series with one, that no column has."""
    own = getattr(y, "name", None)
    name = own if isinstance(own, str) and own else "y"
    while name in names:
        name += "_"
    return name


def _label_column(labels: RowLabels, rows: int) -> Column:
    """The labels as a column; label lists, which a column cannot hold, as zeros."""
    if labels.labels is None:
        return NumberColumn(np.zeros(rows))
    if labels.names and isinstance(labels.names[0], str):
        return CategoryColumn(labels.labels.astype(np.int32), [str(name) for name in labels.names])
    return NumberColumn(labels.labels, boolean=bool(labels.names))


def table_of(frame: Any) -> Table:
    """The columns of a data frame (pandas, Polars, Arrow), or of a dictionary of arrays or lists.

    UsageError for a column with more than one dimension, or columns of different lengths.
    """
    names = keys_of(frame)
    named = zip(names, columns_of(frame), strict=True)
    columns = {n: _column(name, _cells(column)) for n, (name, column) in enumerate(named)}
    return Table(SOURCE, tuple(map(str, names)), columns)


def encode_numbers(
    inputs: RawInputs, features: int, encoding: TableEncoding, source: str
) -> Inputs:
    """Encode a matrix [N, F]: the columns of the training table, in order, without the label.

    UsageError for another F; DataError for a number where a column has dates or text.
    """
    width, sparse = encoding.width - 1, len(inputs.indptr) > 0
    if features > width or (features < width and not sparse):
        raise UsageError(
            f"{source}: expected {width} features, as in the training data; got {features}"
        )
    dense = csr.to_dense(inputs, width).dense if sparse else inputs.dense
    columns = {n: NumberColumn(dense[:, n].astype(np.float64)) for n in range(width)}
    table = Table(source, tuple(map(str, range(width))), columns, named=False)
    return encoding.transform(encoding.adapted(table))


def _cells(column: Any) -> NDArray[Any]:
    """The cells of a column as an array."""
    if not isinstance(column, np.ndarray | list | tuple) and hasattr(column, "to_numpy"):
        return np.asarray(column.to_numpy())
    if isinstance(column, np.ndarray):
        return column
    mixed = any(cell is None or isinstance(cell, str) for cell in column)
    return np.array(column, object) if mixed else np.asarray(column)


def _column(name: Any, cells: NDArray[Any]) -> Column:
    if cells.ndim != 1:
        raise UsageError(
            f"{SOURCE}: column {str(name)!r}: expected one dimension; got {cells.ndim}"
        )
    match cells.dtype.kind:
        case "b":
            return NumberColumn(cells.astype(np.float64), boolean=True)
        case "i" | "u" | "f":
            return NumberColumn(cells.astype(np.float64))
        case "M":
            seconds = cells.astype("datetime64[ms]").astype(np.int64) / 1000.0
            return DateColumn(np.where(np.isnat(cells), np.nan, seconds))
        case "m":
            seconds = cells.astype("timedelta64[ms]").astype(np.int64) / 1000.0
            return NumberColumn(np.where(np.isnat(cells), np.nan, seconds))
    return _of_objects(cells)


def _of_objects(cells: NDArray[Any]) -> Column:
    """A column of text, or of other objects that are as good as text, numbers or dates."""
    known = [cell for cell in cells.tolist() if cell is not None and cell == cell]
    if known and all(isinstance(cell, bool | int | float) for cell in known):
        boolean = all(isinstance(cell, bool) for cell in known)
        numbers = [np.nan if cell is None else float(cell) for cell in cells.tolist()]
        return NumberColumn(np.array(numbers), boolean)
    return CategoryColumn.of_cells(cells.tolist())
