"""Named columns given in Python: data frames of pandas, Polars and Arrow, and dictionaries.

None of these packages is imported. The values of a dictionary are arrays or lists.
"""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.columns import find_features, numbered
from hogbatch.errors import UsageError


def is_frame(values: Any) -> bool:
    """Whether `values` is a data frame, an Arrow table or a dictionary of columns."""
    return isinstance(values, Mapping) or (hasattr(values, "columns") and hasattr(values, "shape"))


def keys_of(frame: Any) -> list[Any]:
    """The keys of the columns, in order; usually text."""
    if isinstance(frame, Mapping):
        return list(frame)
    return list(frame.column_names if _is_arrow(frame) else frame.columns)


def columns_of(frame: Any) -> list[Any]:
    """The columns by position, because names may occur twice.

    UsageError for columns of different lengths, which only a dictionary can have.
    """
    if isinstance(frame, Mapping):
        lengths = {key: len(column) for key, column in frame.items()}
        if len(set(lengths.values())) > 1:
            raise UsageError(f"expected columns of one length; got {lengths}")
        return list(frame.values())
    if _is_arrow(frame):
        return list(frame.columns)
    if hasattr(frame, "iloc"):  # pandas
        return [frame.iloc[:, position] for position in range(frame.shape[1])]
    if hasattr(frame, "get_columns"):  # Polars
        return list(frame.get_columns())
    return [frame[key] for key in frame.columns]


def names_of(frame: Any) -> tuple[str, ...]:
    """The names of the columns; empty if a key is not text."""
    keys = keys_of(frame)
    return tuple(map(str, keys)) if all(isinstance(key, str) for key in keys) else ()


def in_order(frame: Any, known: Sequence[str]) -> Any:
    """Reorder the columns of a data frame to the `known` features.

    Raises DataError like `find_features`.
    """
    keys = keys_of(frame)
    names = [str(key) for key in keys]
    if numbered(names) and set(known).isdisjoint(names):
        return frame
    sources = find_features(names, known, "the data frame")
    if sources == list(range(len(keys))):
        return frame
    chosen = [keys[n] for n in sources]
    if isinstance(frame, Mapping):
        return {key: frame[key] for key in chosen}
    return frame.select(chosen) if _is_arrow(frame) else frame[chosen]


def is_numeric(frame: Any) -> bool:
    """Whether all columns are numbers or booleans without gaps."""
    columns = map(_numbers, columns_of(frame))
    return all(each is not None and not _has_gaps(each) for each in columns)


def matrix_of(frame: Any, name: str) -> NDArray[Any]:
    """The columns of a frame of numbers or booleans without gaps: float32 or float64 [N, F].

    UsageError names the first other column; `name` is that of the frame in messages.
    """
    columns = []
    for key, column in zip(keys_of(frame), columns_of(frame), strict=True):
        values = _numbers(column)
        if values is None:
            raise _not_numbers(name, key, "something else")
        if _has_gaps(values):
            row = int(np.argmax(np.isnan(values)))
            raise _not_numbers(name, key, f"a missing value in row {row} (counted from 0)")
        columns.append(values)
    rows = len(columns[0]) if columns else len(frame)
    narrow = bool(columns) and all(np.can_cast(each.dtype, np.float32) for each in columns)
    matrix = np.empty((rows, len(columns)), np.float32 if narrow else np.float64)
    for position, values in enumerate(columns):
        matrix[:, position] = values
    return matrix


def _not_numbers(name: str, key: Any, got: str) -> UsageError:
    return UsageError(
        f"{name}: column {key!r}: expected numbers without gaps; got {got}: encode the column "
        "(scikit-learn's ColumnTransformer), or leave it out"
    )


def _is_arrow(frame: Any) -> bool:
    """Whether `frame` is an Arrow table or record batch."""
    return hasattr(frame, "column_names")


def _numbers(column: Any) -> NDArray[Any] | None:
    """The values of a column of numbers; missing ones are NaN. None for another column."""
    values = np.asarray(column)
    if values.dtype.kind in "biuf" and values.ndim == 1:
        return values
    if values.dtype.kind != "O" or values.ndim != 1:
        return None
    known = [each for each in values.tolist() if not _is_missing(each)]
    if not all(isinstance(each, Real) for each in known):
        return None
    numbers = [np.nan if _is_missing(each) else each for each in values.tolist()]
    return np.array(numbers, np.float64)


def _has_gaps(values: NDArray[Any]) -> bool:
    return values.dtype.kind == "f" and bool(np.isnan(values).any())


def _is_missing(value: Any) -> bool:
    """Whether `value` is None or a marker that does not equal itself, as NaN and pandas.NA."""
    return value is None or (value != value) is not False
