"""Contents of files, checked against types: JSON that was parsed, and arrays.

Prediction needs NumPy and safetensors alone, so model files and entries of the data cache are
checked here and not by msgspec.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from hogbatch.machine.printable import printable

MAX_INT: Final = 2**63 - 1
FLOAT32_MAX: Final = float(np.finfo(np.float32).max)
FLOAT64_MAX: Final = sys.float_info.max
TO_ZERO: Final = FLOAT64_MAX  # a scale that divides every number within float32 to 0 in float32
MAX_SHOWN: Final = 80  # characters of a value in a message
NAMES: Final = {
    bool: "true or false",
    int: "a whole number",
    float: "a finite number",
    str: "text",
    tuple: "a list",
    dict: "an object",
    type(None): "null",
}


class Range(NamedTuple):
    """The lowest and the highest number, in Annotated types."""

    low: int
    high: int


Count = Annotated[int, Range(0, MAX_INT)]


def convert(found: Any, expected: Any, name: str) -> Any:
    """`found` as a value of the type `expected`; ValueError names the place, which is in `name`.

    Types are those of JSON, with tuples or sequences for lists, and Any, Literal, unions, numbers
    with a Range, dictionaries by text, named tuples (from lists), dataclasses, and arrays of one
    dimension. Whole numbers are within int64, and all numbers are finite.
    """
    origin, parts = get_origin(expected) or expected, get_args(expected)
    if origin is Any:
        return found
    if origin is Annotated:
        number, (low, high) = convert(found, parts[0], name), parts[1]
        if low <= number <= high:
            return number
    elif origin in (Union, UnionType):
        for part in sorted(parts, key=lambda part: part is not type(found)):
            with suppress(ValueError):
                return convert(found, part, name)
    elif origin is Literal:
        if any(type(found) is type(each) and found == each for each in parts):
            return found
    elif origin is np.ndarray:
        if isinstance(found, np.ndarray) and (found.ndim, found.dtype) == (1, _dtype(expected)):
            return found
    elif origin is dict and type(found) is dict:
        return {key: convert(each, parts[1], f"{name}.{key}") for key, each in found.items()}
    elif origin in (tuple, Sequence) and type(found) is list:
        if parts[0] is str and {*map(type, found)} <= {str}:  # there may be millions
            return tuple(found)
        return tuple(convert(each, parts[0], f"{name}[{n}]") for n, each in enumerate(found))
    elif is_dataclass(origin) and type(found) is dict:
        return _record(found, origin, name)
    elif hasattr(origin, "_fields") and type(found) is list and len(found) == len(origin._fields):
        types = zip(found, origin.__annotations__.items(), strict=True)
        return origin(*(convert(each, own, f"{name}.{field}") for each, (field, own) in types))
    elif origin is float and type(found) in (int, float):
        if abs(found) <= FLOAT64_MAX:
            return float(found)
    elif type(found) is origin and (origin is not int or abs(found) <= MAX_INT):
        return found
    raise ValueError(f"{name}: expected {_shown(expected)}; got {_got(found)}")


def _record(found: dict[str, Any], expected: Any, name: str) -> Any:
    """A dataclass from its fields; those with a default may be missing, and others not be there."""
    own = {field.name: field for field in fields(expected)}
    needed = [n for n, field in own.items() if field.default is MISSING]
    if not set(needed) <= found.keys() <= own.keys():
        raise ValueError(f"{name}: expected the fields {', '.join(own)}; got {_got([*found])}")
    values = {n: convert(each, own[n].type, f"{name}.{n}") for n, each in found.items()}
    return expected(**values)


def by_field(record: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The scalars and the arrays of a dataclass by field, without None, as `convert` reads them."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    arrays = {name: each for name, each in values.items() if isinstance(each, np.ndarray)}
    return {n: each for n, each in values.items() if n not in arrays and each is not None}, arrays


def _dtype(expected: Any) -> np.dtype[Any]:
    """The dtype of the type of an array."""
    (scalar,) = get_args(get_args(expected)[1])
    dtype: np.dtype[Any] = np.dtype(scalar)
    return dtype


def _shown(expected: Any) -> str:
    origin, parts = get_origin(expected) or expected, get_args(expected)
    if origin is Annotated:
        return f"{_shown(parts[0])} from {parts[1].low} to {parts[1].high}"
    if origin in (Union, UnionType):
        return " or ".join(map(_shown, parts))
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin is np.ndarray:
        return f"{_dtype(expected)}[n]"
    return NAMES.get(origin, "a list" if issubclass(origin, tuple) else "an object")


def _got(found: Any) -> str:
    if isinstance(found, np.ndarray):
        return f"{found.dtype}{list(found.shape)}"
    return printable(repr(found), MAX_SHOWN)


def expect(holds: bool | np.bool_, message: str) -> None:
    """ValueError with `message` unless it holds."""
    if not holds:
        raise ValueError(message)


def within(numbers: NDArray[Any], low: float, high: float) -> bool:
    """Whether all numbers are from `low` to `high`; NaN is not."""
    return not numbers.size or bool(low <= numbers.min() and numbers.max() <= high)


def is_indptr(indptr: NDArray[np.int64], stored: int) -> bool:
    """Whether these are N + 1 ascending places in an array of `stored` values."""
    if not len(indptr) or not 0 <= indptr[0] <= indptr[-1] <= stored:
        return False
    return bool((indptr[1:] >= indptr[:-1]).all())
