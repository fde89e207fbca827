"""Rows given in Python as a :class:`Table`: data frames, dictionaries, matrices, lists of rows.

    data frames          of pandas, Polars and Arrow
    dictionaries         of columns (arrays or lists); of the cells of one row; a list of rows
    matrices [N, F]      arrays of numbers, text or objects, structured arrays, lists of lists

None of the packages of data frames is imported. PyArrow converts the columns, except numbers of
arrays, which need nothing but NumPy.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.columns import TableForm, find_features, numbered
from hogbatch.data.raw import are_exact
from hogbatch.data.table.columns import CategoryColumn, Column, NumberColumn, Table
from hogbatch.errors import UsageError
from hogbatch.machine.budget import require

SOURCE: Final = "the data frame"
FLOATS: Final = frozenset((float, np.float64, np.float32, type(None)))  # types of cells
FEW_CELLS: Final = 64  # of text; PyArrow converts more cells faster than Python


class GivenColumns(NamedTuple):
    """The columns of the caller, before their conversion."""

    keys: Sequence[Any]  # names, usually text; numbers from 0 without names
    cells: Sequence[Any]  # an array, series or list for each column
    named: bool = True


def is_frame(values: Any) -> bool:
    """Whether `values` has named columns."""
    if isinstance(values, Mapping | GivenColumns) or _is_lazy(values) or _is_list_of_rows(values):
        return True
    if isinstance(values, np.ndarray):
        return values.dtype.names is not None
    return hasattr(values, "column_names") or (
        hasattr(values, "columns") and hasattr(values, "shape")
    )


def columns_of(values: Any) -> GivenColumns:
    """The columns by position, because names may occur twice.

    UsageError for columns of different lengths, or anything but columns and matrices.
    """
    if isinstance(values, GivenColumns):
        return values
    if _is_lazy(values):
        values = values.collect()
    if _is_list_of_rows(values):
        keys = list(dict.fromkeys(key for row in values for key in row))
        return GivenColumns(keys, [[row.get(key) for row in values] for key in keys])
    if isinstance(values, Mapping):
        return GivenColumns(list(values), _of_mapping(values))
    if hasattr(values, "column_names"):  # Arrow
        return GivenColumns(values.column_names, values.columns)
    if hasattr(values, "iloc") and hasattr(values, "columns"):  # pandas
        return GivenColumns(list(values.columns), [cells for _, cells in values.items()])
    if hasattr(values, "get_columns"):  # Polars
        return GivenColumns(values.columns, values.get_columns())
    if isinstance(values, np.ndarray) and values.dtype.names is not None:
        names = values.dtype.names
        return GivenColumns(names, [values[name] for name in names])
    matrix = _matrix(values)
    return GivenColumns(range(matrix.shape[1]), list(matrix.T), named=False)


def _is_lazy(values: Any) -> bool:
    """Whether `values` is a query of Polars, whose columns are known only when it is run."""
    return hasattr(values, "collect") and hasattr(values, "lazy")


def _is_list_of_rows(values: Any) -> bool:
    return isinstance(values, list | tuple) and bool(values) and isinstance(values[0], Mapping)


def _of_mapping(columns: Mapping[Any, Any]) -> list[Any]:
    """The columns of a dictionary; one row, if it has cells in place of columns."""
    cells = {
        key: isinstance(value, str | bytes) or not hasattr(value, "__len__")
        for key, value in columns.items()
    }
    if cells and all(cells.values()):
        return [[cell] for cell in columns.values()]
    lengths = {key: 1 if cells[key] else len(value) for key, value in columns.items()}
    if any(cells.values()) or len(set(lengths.values())) > 1:
        raise UsageError(f"expected columns of one length, or the cells of one row; got {lengths}")
    return list(columns.values())


def _matrix(values: Any) -> NDArray[Any]:
    """A matrix [N, F] of numbers in column-major order, or of other cells; UsageError if not."""
    if isinstance(values, np.ma.MaskedArray):
        masked, values = np.ma.getmaskarray(values), np.array(values.data, object)
        values[masked] = None
    try:
        matrix = np.asarray(values)
        if matrix.dtype.kind in "US" and not isinstance(values, np.ndarray):
            matrix = np.array(values, object)  # the numbers of a list of lists stay numbers
    except ValueError as error:
        raise UsageError(f"expected rows of one length; {error}") from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "biufOUSTMm":
        got = f"shape {matrix.shape} of {matrix.dtype}" if matrix.ndim else type(values).__name__
        raise UsageError(f"expected a matrix [rows, features] or a data frame; got {got}")
    if matrix.dtype.kind in "biuf":
        require(matrix.nbytes, "the columns of the matrix", "use fewer rows or columns")
        return np.asfortranarray(matrix)
    return matrix


def table_of(
    values: Any,
    used: Callable[[TableForm], Iterable[int]] | None = None,
    source: str = SOURCE,
) -> Table:
    """The columns of a data frame, dictionary or matrix; `source` is its name in messages.

    `used` returns the positions of the columns to convert; None: all. UsageError for columns of
    different lengths, or with more than one dimension. DataError for cells that are not numbers,
    text or dates.
    """
    given = columns_of(values)
    names, columns = tuple(map(str, given.keys)), dict[int, Column]()
    form = TableForm(source, names, given.named)
    for n in range(len(names)) if used is None else used(form):
        cells = given.cells[n]
        if (dimensions := getattr(cells, "ndim", 1)) != 1:
            raise UsageError(
                f"{source}: column {names[n]!r}: expected one dimension; got {dimensions}"
            )
        columns[n] = _column(cells, names[n], source)
    return Table(source, names, columns, given.named)


def _column(cells: Any, name: str, source: str) -> Column:
    if hasattr(getattr(cells, "array", None), "to_numpy"):  # a series of pandas
        if isinstance(cells.dtype, np.dtype):
            cells = cells.to_numpy()
        elif cells.dtype.type is str and len(cells) <= FEW_CELLS:
            cells = cells.tolist()
    if isinstance(cells, list):
        types = {*map(type, cells)}
        if types <= FLOATS:
            return NumberColumn(np.array(cells, np.float64))
        if str in types and len(cells) <= FEW_CELLS:
            return CategoryColumn.of_cells(cells)
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        numbers = cells.dtype.type
        if numbers in (np.float32, np.float64):
            return NumberColumn(np.asarray(cells, numbers))  # in the byte order of this machine
        kind = cells.dtype.kind
        if kind in "bf" or are_exact(cells):
            return NumberColumn(cells.astype(np.float64), boolean=kind == "b", whole=kind in "iu")
    from hogbatch.data.table.arrow.columns import column_of  # here: PyArrow is large

    return column_of(cells, name, source)


def matrix_of(frame: Any, name: str, known: Sequence[str] = ()) -> NDArray[np.float64]:
    """The columns of a frame of numbers or booleans without gaps: float64[N, F].

    The columns are put in the order of the `known` features, if there are any. UsageError names the
    first column of something else; `name` is that of the frame in messages. DataError like
    `find_features`.
    """
    table = table_of(frame, lambda form: _features(form.names, known))
    matrix = np.empty((table.rows, len(table.columns)))
    for feature, (position, column) in enumerate(table.columns.items()):
        got = None
        if not isinstance(column, NumberColumn):
            got = "something else"
        elif column.missing.any():
            row = int(np.argmax(column.missing))
            got = f"a missing value in row {row} (counted from 0)"
        else:
            matrix[:, feature] = column.values
        if got:
            raise UsageError(
                f"{name}: column {columns_of(frame).keys[position]!r}: expected numbers without "
                f"gaps; got {got}: encode the column (scikit-learn's ColumnTransformer), or leave "
                "it out"
            )
    return matrix


def _features(names: Sequence[str], known: Sequence[str]) -> Sequence[int]:
    """The positions of the `known` features; all, if none are known or the names are numbers."""
    if not known or (numbered(names) and set(known).isdisjoint(names)):
        return range(len(names))
    return find_features(names, known, SOURCE)


def without(frame: Any, name: str, where: str) -> tuple[GivenColumns, Any]:
    """A frame without the column `name`, and that column; UsageError if there is not one such."""
    given = columns_of(frame)
    places = [n for n, key in enumerate(given.keys) if str(key) == str(name)]
    if len(places) != 1:
        known = ", ".join(map(str, given.keys))
        got = f"{len(places)} columns {name!r}" if places else "no such column"
        raise UsageError(f"{where}: expected one column {name!r}; got {got} (it has {known})")
    others = [n for n in range(len(given.keys)) if n != places[0]]
    keys, cells = ([each[n] for n in others] for each in given[:2])
    return GivenColumns(keys, cells, given.named), given.cells[places[0]]
