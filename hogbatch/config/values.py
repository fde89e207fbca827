"""What the value of a setting may be: kinds, by which it is read, and checks."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from hogbatch.errors import UsageError


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
FRACTION: Final = Check("at least 0 and below 1", lambda value: 0 <= value < 1)
UP_TO_ONE: Final = Check("from 0 to 1", lambda value: 0 <= value <= 1)
INT64: Final = Check("from 0 to 2^63 - 1", lambda value: 0 <= value < 2**63)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The fewest and the most rows that one batch may have, both included."""

    smallest: int
    largest: int

    def __post_init__(self) -> None:
        if self.smallest > self.largest:
            raise UsageError(
                f"batch limits are reversed: expected MIN:MAX; got {self}, where MIN is larger"
            )
        if self.smallest < 1:
            raise UsageError(f"batch limits must be at least 1 row; got {self}")

    def __str__(self) -> str:
        return f"{self.smallest}:{self.largest}"

    @classmethod
    def parse(cls, text: str) -> "BatchLimits":
        """Read "MIN:MAX", or "ROWS" for both; ValueError for neither, UsageError if reversed."""
        smallest, _, largest = text.partition(":")
        return cls(int(smallest), int(largest or smallest))


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """One worker to start, written "cpu:2" (threads), "gpu:0" (device) or "gpu:host" (NumPy)."""

    device: Literal["cpu", "gpu"]
    threads: int = 0  # of a CPU worker
    ordinal: int | Literal["host"] = 0  # of a GPU worker's device; "host" computes with NumPy

    def __str__(self) -> str:
        return f"{self.device}:{self.threads if self.device == 'cpu' else self.ordinal}"


Workers = tuple[WorkerRequest, ...] | Literal["auto"]


def parse_workers(text: str) -> Workers:
    """Read "cpu:2,gpu:0,gpu:host"; "auto" stays, and means whatever the server has."""
    return "auto" if text == "auto" else tuple(map(_parse_worker, text.split(",")))


def _parse_worker(text: str) -> WorkerRequest:
    match text.strip().split(":"):
        case ["cpu", threads] if threads.isdecimal() and int(threads) > 0:
            return WorkerRequest("cpu", threads=int(threads))
        case ["gpu", ordinal] if ordinal.isdecimal():
            return WorkerRequest("gpu", ordinal=int(ordinal))
        case ["gpu", "host"]:
            return WorkerRequest("gpu", ordinal="host")
    raise UsageError(f"expected auto or a list of cpu:THREADS, gpu:N, gpu:host; got {text!r}")


Damping = float | Literal["root", "auto", "off"]


def _limits(value: Any) -> BatchLimits:
    return value if isinstance(value, BatchLimits) else BatchLimits.parse(text(value))


def _workers(value: Any) -> Workers:
    if isinstance(value, tuple) and value:
        return tuple(map(only(WorkerRequest), value))
    return parse_workers(text(value))


def _damping(value: Any) -> object:
    if value in ("root", "auto", "off"):
        return value
    beta = float(value) if isinstance(value, str) else number(value)
    if POSITIVE.holds(beta):
        return beta
    raise ValueError


LIMITS: Final = Kind('rows as in "1:64"', _limits, _limits)
WORKERS: Final = Kind('workers as in "cpu:2,gpu:0"', _workers, _workers)
DAMPING: Final = Kind("root, auto, off or a number above 0", _damping, _damping)
