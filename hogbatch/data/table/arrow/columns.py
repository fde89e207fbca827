"""Columns of PyArrow tables as NumPy arrays."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from hogbatch.data.raw import are_exact
from hogbatch.data.table.columns import (
    NO_VALUE,
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    TextColumn,
    as_text,
)
from hogbatch.errors import DataError
from hogbatch.machine import budget
from hogbatch.machine.printable import printable, quoted

ADVICE: Final = "use fewer rows, or a machine with more memory"


def convert(
    table: pa.Table,
    names: Mapping[str, str],
    texts: set[str],
    source: object,
    decimal: str = "",
) -> dict[str, Column]:
    """Convert the columns `names` one after the other; each is freed before the next one.

    `decimal` is the mark of decimal numbers in text; empty if the types are those of the source.
    """
    arrays = dict(zip(table.column_names, table.columns, strict=True))
    del table
    columns: dict[str, Column] = {}
    for name, shown in names.items():
        array = arrays.pop(name)
        with _convertible(source, shown, array.type):
            columns[name] = _texts(array) if name in texts else _column(array, decimal)
        del array
    return columns


def column_of(values: Any, name: str, source: object) -> Column:
    """A column of a data frame, an array or a list; text, if its cells have several types."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "mMf":  # that PyArrow may not know
        known = "f8" if values.dtype.kind == "f" else f"{values.dtype.kind}8[ms]"
        values = values.astype(known, copy=False)
    with _convertible(source, name, type(values).__name__):
        try:
            array = values.to_arrow() if hasattr(values, "to_arrow") else _array(values)
        except (pa.ArrowException, OverflowError, UnicodeError):
            return CategoryColumn.of_cells(np.asarray(values, object).tolist())
        whole = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])
        return _column(whole)


def _array(values: Any) -> pa.Array:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, np.ndarray) and not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="))
    return pa.array(values, from_pandas=True)


@contextmanager
def _convertible(source: object, name: str, kind: object) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, TypeError) as error:
        raise DataError(
            f"{source}: column {quoted(name)}: expected numbers, text or dates; got "
            f"{kind} ({printable(str(error), 80)}); leave it out with --drop, or drop= in Python"
        ) from None


def indexes_in(schema: pa.Schema) -> frozenset[str]:
    """The names of the columns in which pandas stored the index of a data frame."""
    try:
        stored = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))["index_columns"]
    except (ValueError, KeyError, TypeError):
        return frozenset()
    return frozenset(name for name in stored if isinstance(name, str))


def _column(array: pa.ChunkedArray, decimal: str = "") -> Column:
    kind, types = array.type, pa.types
    if types.is_null(kind):
        return NumberColumn(np.full(len(array), np.nan))
    if types.is_boolean(kind):
        return NumberColumn(_floats(array.cast(pa.uint8())), boolean=True)
    if types.is_integer(kind) or types.is_decimal(kind):
        numbers = _floats(array)
        if not are_exact(numbers):
            return _categories(array.cast(pa.string()))
        return NumberColumn(numbers, whole=types.is_integer(kind))
    if types.is_floating(kind):
        return NumberColumn(_floats(array), decimal)
    if types.is_date(kind) or types.is_timestamp(kind):
        milliseconds = array.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        return DateColumn(_floats(milliseconds) / 1000)
    if types.is_time(kind):
        return DateColumn(_floats(array.cast(pa.time64("us")).cast(pa.int64())) / 1e6)
    if types.is_duration(kind):
        return NumberColumn(
            _floats(array.cast(pa.duration("us"), safe=False).cast(pa.int64())) / 1e6
        )
    categories = _categories(array)
    return replace(categories, declared=types.is_dictionary(kind) and not decimal)


def _floats(array: pa.ChunkedArray) -> Any:
    """Convert numbers to float64[N], with NaN for missing values."""
    if not pa.types.is_integer(array.type) and array.type != pa.float64():
        array = array.cast(pa.float64(), safe=False)
    return _values(array, np.nan, np.float64)


def _values(array: pa.ChunkedArray, missing: float, dtype: Any) -> Any:
    """Copy integers or floats[N] from the buffers of PyArrow.

    Its own conversions import pandas or pyarrow.compute, which takes longer than the conversion.
    """
    budget.require(np.dtype(dtype).itemsize * len(array), "a column", ADVICE)
    stored, values, start = array.type.to_pandas_dtype(), np.empty(len(array), dtype), 0
    for chunk in array.chunks:
        rows = slice(chunk.offset, chunk.offset + len(chunk))
        validity, content = chunk.buffers()
        part = values[start : start + len(chunk)]
        part[:] = np.frombuffer(content or b"", stored)[rows]
        if chunk.null_count:
            bits = np.frombuffer(validity, np.uint8)
            part[np.unpackbits(bits, count=rows.stop, bitorder="little")[rows] == 0] = missing
        start += len(chunk)
    return values


def _categories(array: pa.ChunkedArray) -> CategoryColumn:
    types = pa.types
    if not types.is_dictionary(array.type):
        if types.is_nested(array.type):
            raise TypeError("a column of lists")
        array = array.dictionary_encode()
    whole = array.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # of no rows
        return CategoryColumn(np.empty(0, np.int32), [])
    codes = _values(pa.chunked_array([whole.indices]), NO_VALUE, np.int32)
    return CategoryColumn.of(codes, [as_text(value) for value in whole.dictionary.to_pylist()])


def _texts(array: pa.ChunkedArray) -> TextColumn:
    import pyarrow.compute as pc  # here: other columns do not need its 50 ms and 8 MB

    whole = pc.utf8_lower(array.cast(pa.large_string())).combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # of no rows
        return TextColumn(np.empty(0, np.uint8), np.zeros(1, np.int64))
    _, offsets, characters = whole.buffers()
    first = whole.offset
    indptr = np.frombuffer(offsets, np.int64)[first : first + len(whole) + 1]
    return TextColumn(np.frombuffer(characters or b"", np.uint8), indptr)
