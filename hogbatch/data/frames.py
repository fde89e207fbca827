"""Named columns given in Python: data frames of pandas, Polars and Arrow, and dictionaries.

None of the packages of data frames is imported; PyArrow converts their columns. The values of a
dictionary are arrays or lists.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.columns import TableForm, find_features, numbered
from hogbatch.data.table.columns import Column, NumberColumn, Table
from hogbatch.errors import UsageError

SOURCE: Final = "the data frame"


def is_frame(values: Any) -> bool:
    """Whether `values` is a data frame, an Arrow table or a dictionary of columns."""
    return isinstance(values, Mapping) or (hasattr(values, "columns") and hasattr(values, "shape"))


def keys_of(frame: Any) -> list[Any]:
    """The keys of the columns, in order; usually text."""
    if isinstance(frame, Mapping):
        return list(frame)
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def columns_of(frame: Any) -> list[Any]:
    """The columns by position, because names may occur twice.

    UsageError for columns of different lengths, which only a dictionary can have.
    """
    if isinstance(frame, Mapping):
        lengths = {key: len(column) for key, column in frame.items()}
        if len(set(lengths.values())) > 1:
            raise UsageError(f"expected columns of one length; got {lengths}")
        return list(frame.values())
    if hasattr(frame, "column_names"):  # Arrow
        return list(frame.columns)
    if hasattr(frame, "iloc"):  # pandas
        return [frame.iloc[:, position] for position in range(frame.shape[1])]
    if hasattr(frame, "get_columns"):  # Polars
        return list(frame.get_columns())
    return [frame[key] for key in frame.columns]


def table_of(frame: Any, used: Callable[[TableForm], Iterable[int]] | None = None) -> Table:
    """The columns of a data frame, or of a dictionary of arrays or lists.

    `used` returns the positions of the columns to convert; None: all. UsageError for columns of
    different lengths, or with more than one dimension. DataError for cells that are not numbers,
    text or dates.
    """
    from hogbatch.data.table.arrow.columns import column_of  # here: PyArrow is large

    names = tuple(map(str, keys_of(frame)))
    cells, columns = columns_of(frame), dict[int, Column]()
    for n in range(len(names)) if used is None else used(TableForm(SOURCE, names, True)):
        if (dimensions := getattr(cells[n], "ndim", 1)) != 1:
            raise UsageError(
                f"{SOURCE}: column {names[n]!r}: expected one dimension; got {dimensions}"
            )
        columns[n] = column_of(cells[n], names[n], SOURCE)
    return Table(SOURCE, names, columns)


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
                f"{name}: column {keys_of(frame)[position]!r}: expected numbers without gaps; got "
                f"{got}: encode the column (scikit-learn's ColumnTransformer), or leave it out"
            )
    return matrix


def _features(names: Sequence[str], known: Sequence[str]) -> Sequence[int]:
    """The positions of the `known` features; all, if none are known or the names are numbers."""
    if not known or (numbered(names) and set(known).isdisjoint(names)):
        return range(len(names))
    return find_features(names, known, SOURCE)
