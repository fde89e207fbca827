"""Columns of data frames and of dictionaries of columns, with NumPy alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.table.columns import CategoryColumn, Column, DateColumn, NumberColumn, Table
from hogbatch.errors import UsageError

SOURCE = "the data frame"


def is_frame(given: Any) -> bool:
    """Whether rows are given as named columns: a data frame, or a dictionary of columns."""
    return isinstance(given, Mapping) or hasattr(given, "columns")


def table_of(given: Any) -> Table:
    """The columns of a data frame (pandas, Polars, Arrow), or of a dictionary of arrays or lists.

    UsageError for a column with more than one dimension, or columns of different lengths.
    """
    names = _names(given)
    columns = {n: _column(name, _cells(given, n, name)) for n, name in enumerate(names)}
    lengths = {str(name): len(columns[n]) for n, name in enumerate(names)}
    if len(set(lengths.values())) > 1:
        raise UsageError(f"{SOURCE}: expected columns of one length; got {lengths}")
    return Table(SOURCE, tuple(map(str, names)), columns)


def _names(given: Any) -> list[Any]:
    if isinstance(given, Mapping):
        return list(given)
    return list(getattr(given, "column_names", given.columns))  # Arrow has both


def _cells(given: Any, position: int, name: Any) -> NDArray[Any]:
    """The cells of a column as an array."""
    if isinstance(given, Mapping):
        cells = given[name]
    elif hasattr(given, "iloc"):  # pandas, where names may repeat
        cells = given.iloc[:, position]
    else:
        cells = given.column(position) if hasattr(given, "column") else given[name]
    if not isinstance(cells, np.ndarray | list | tuple) and hasattr(cells, "to_numpy"):
        return np.asarray(cells.to_numpy())
    if isinstance(cells, np.ndarray):
        return cells
    mixed = any(cell is None or isinstance(cell, str) for cell in cells)
    return np.array(cells, object) if mixed else np.asarray(cells)


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
