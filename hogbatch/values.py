"""What the value of a setting may be: kinds, by which it is read, and checks."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of value, as messages call it, and how it is read; readers raise ValueError."""

    expected: str
    from_text: Callable[[str], object]  # a flag
    from_value: Callable[[Any], object]  # TOML or Python


def only(*types: type) -> Callable[[Any], Any]:
    """A reader that passes values of `types` on; a bool counts as a number nowhere."""

    def read(value: Any) -> Any:
        if isinstance(value, types) and (bool in types or not isinstance(value, bool)):
            return value
        raise ValueError

    return read


def text(value: Any) -> str:
    """Read text or a path."""
    given = str(value) if isinstance(value, Path) else only(str)(value)
    given.encode()  # raises for a path that is not UTF-8, which config.toml could not hold
    return cast(str, given)


def number(value: Any) -> float:
    """Read a number that is no text."""
    return float(only(int, float)(value))


def _widths(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        return tuple(map(int, value.split(","))) if value.strip() else ()
    return tuple(map(only(int), only(list, tuple)(value)))


TEXT: Final = Kind("text in UTF-8", text, text)
WHOLE: Final = Kind("a whole number", int, only(int))
NUMBER: Final = Kind("a number", float, number)
SWITCH: Final = Kind("true or false", only(bool), only(bool))
WIDTHS: Final = Kind('whole numbers as in "512,512"', _widths, _widths)


@dataclass(frozen=True, slots=True)
class Check:
    """What a value must be, beyond its type. Of a tuple, every element must be it."""

    expected: str
    holds: Callable[[Any], bool]


ANYTHING: Final = Check("anything", lambda value: True)
POSITIVE: Final = Check("above 0", lambda value: 0 < value < math.inf)
NOT_NEGATIVE: Final = Check("0 or more", lambda value: 0 <= value < math.inf)
ABOVE_ONE: Final = Check("above 1", lambda value: 1 < value < math.inf)
SHARE: Final = Check("at least 0 and below 1", lambda value: 0 <= value < 1)
INT64: Final = Check("from 0 to 2^63 - 1", lambda value: 0 <= value < 2**63)
