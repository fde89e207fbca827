"""Data frames and dictionaries of columns as tables, with NumPy alone."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.frames import columns_of, keys_of
from hogbatch.data.table.columns import CategoryColumn, Column, DateColumn, NumberColumn, Table
from hogbatch.errors import UsageError

SOURCE = "the data frame"


def table_of(frame: Any) -> Table:
    """The columns of a data frame (pandas, Polars, Arrow), or of a dictionary of arrays or lists.

    UsageError for a column with more than one dimension, or columns of different lengths.
    """
    names = keys_of(frame)
    named = zip(names, columns_of(frame), strict=True)
    columns = {n: _column(name, _cells(column)) for n, (name, column) in enumerate(named)}
    return Table(SOURCE, tuple(map(str, names)), columns)


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
