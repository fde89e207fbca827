"""Value types of the settings: their conversions, and the conditions that values meet."""

import csv
import math
import os
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, cast

from hogbatch.errors import UsageError

BYTES_OF: Final = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type of value: its name in error messages, and its conversions, which raise ValueError.

    A converted value meets the condition; so does every element of a tuple.
    """

    expected: str
    from_text: Callable[[str], object]  # from a flag
    from_value: Callable[[Any], object]  # from TOML or Python
    metavar: str = ""  # in the help
    condition: str = "anything"  # completes "must be ..." in error messages
    accepts: Callable[[Any], bool] = lambda value: True

    def where(
        self, condition: str, accepts: Callable[[Any], bool], metavar: str = ""
    ) -> "ValueType":
        """The values of this type that meet a condition."""
        metavar = metavar or self.metavar
        return replace(self, metavar=metavar, condition=condition, accepts=accepts)

    def one_of(self, names: Collection[str], metavar: str = "") -> "ValueType":
        """The same for certain names."""
        return self.where(f"one of {', '.join(names)}", names.__contains__, metavar)


def instance_of(*types: type) -> Callable[[Any], Any]:
    """A conversion that accepts instances of `types` only; a bool is not accepted as a number."""

    def convert(value: Any) -> Any:
        if isinstance(value, types) and (bool in types or not isinstance(value, bool)):
            return value
        raise ValueError

    return convert


def text(value: Any) -> str:
    """Convert text or a path."""
    converted = str(value) if isinstance(value, Path) else instance_of(str)(value)
    converted.encode()  # raises for a path that is not UTF-8, which config.toml cannot store
    return cast(str, converted)


def path(value: Any) -> str:
    """Convert a path; ~ is the home directory, also where no shell has replaced it."""
    return os.path.expanduser(text(value))


def number(value: Any) -> float:
    """Convert an int or a float, but not text."""
    return float(instance_of(int, float)(value))


def _bytes(value: Any) -> int:
    """Convert a size as in "1GB", or in bytes."""
    if not isinstance(value, str):
        return int(number(value))
    match = re.fullmatch(r"([\d.]+) *(|[kMGT]?B)", value)
    if match is None:
        raise ValueError
    return int(float(match[1]) * BYTES_OF[match[2]])


def _widths(value: Any) -> tuple[int, ...]:
    if isinstance(value, str):
        return tuple(map(int, value.split(","))) if value.strip() else ()
    return tuple(map(instance_of(int), instance_of(list, tuple)(value)))


def _names(value: Any) -> tuple[str, ...]:
    """Convert names separated by commas; a name with a comma is quoted as in CSV."""
    if not isinstance(value, str):
        return tuple(map(text, instance_of(list, tuple)(value)))
    try:
        cells = next(csv.reader([text(value)], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise ValueError from error
    return tuple(name.strip() for name in cells if name.strip())


TEXT: Final = ValueType("text in UTF-8", text, text, "NAME")
PATH: Final = ValueType(TEXT.expected, path, path, "DATA")
BOOLEAN: Final = ValueType("true or false", instance_of(bool), instance_of(bool))
NAMES: Final = ValueType('names as in "age,city"', _names, _names, "NAME,...")
INTEGER: Final = ValueType("a whole number", int, instance_of(int), "N")
NUMBER: Final = ValueType("a number", float, number, "X")


def _is_positive(value: float) -> bool:
    return 0 < value < math.inf


COUNT: Final = INTEGER.where("above 0", _is_positive)
COUNT_OR_ZERO: Final = INTEGER.where("0 or more", lambda value: value >= 0)
SEED: Final = INTEGER.where("from 0 to 2^63 - 1", lambda value: 0 <= value < 2**63)
POSITIVE: Final = NUMBER.where("above 0", _is_positive)
SECONDS: Final = NUMBER.where("above 0", _is_positive, "S")
NON_NEGATIVE: Final = NUMBER.where("0 or more", lambda value: 0 <= value < math.inf)
ABOVE_ONE: Final = NUMBER.where("above 1", lambda value: 1 < value < math.inf, "FACTOR")
FRACTION: Final = NUMBER.where("at least 0 and below 1", lambda value: 0 <= value < 1, "FRACTION")
UP_TO_ONE: Final = NUMBER.where("from 0 to 1", lambda value: 0 <= value <= 1, "FRACTION")
BYTES: Final = ValueType('a size as in "8GB" or "500MB"', _bytes, _bytes).where(
    "above 0", _is_positive, "SIZE"
)
WIDTHS: Final = ValueType('whole numbers as in "512,512"', _widths, _widths).where(
    "above 0", _is_positive, "H,H,..."
)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The minimum and maximum number of rows in one batch, both inclusive."""

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
        """Parse "MIN:MAX", or "ROWS" for both limits.

        Raises ValueError for any other text, UsageError if MIN is larger than MAX.
        """
        smallest, _, largest = text.partition(":")
        return cls(int(smallest), int(largest or smallest))


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """One worker to start: "cpu:2" (threads), "gpu:0" (device) or "gpu:host" (NumPy)."""

    device: Literal["cpu", "gpu"]
    threads: int = 0  # CPU workers only
    ordinal: int | Literal["host"] = 0  # GPU workers only: device number; "host": NumPy

    def __str__(self) -> str:
        return f"{self.device}:{self.threads if self.device == 'cpu' else self.ordinal}"


Workers = tuple[WorkerRequest, ...] | Literal["auto"]


def parse_workers(text: str) -> Workers:
    """Parse "cpu:2,gpu:0,gpu:host". "auto" (all devices of the server) is returned as is."""
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


def _limits(value: Any) -> BatchLimits:
    return value if isinstance(value, BatchLimits) else BatchLimits.parse(text(value))


def _workers(value: Any) -> Workers:
    if isinstance(value, tuple) and value:
        return tuple(map(instance_of(WorkerRequest), value))
    return parse_workers(text(value))


def _teams(value: Any) -> int | None:
    if value == "auto":
        return None
    return int(value) if isinstance(value, str) else cast(int, instance_of(int)(value))


def _cluster(value: Any) -> str | None:
    """Convert the address of a cluster; "none" is this server alone."""
    address = text(value)
    return None if address in ("", "none") else address


TEAMS: Final = ValueType("auto or a whole number", _teams, _teams).where(
    "above 0", _is_positive, "auto|N"
)
CLUSTER: Final = ValueType(TEXT.expected, _cluster, _cluster, "auto|ADDRESS|local|none")
BATCH_LIMITS: Final = ValueType('rows as in "1:64"', _limits, _limits, "MIN:MAX")
WORKERS: Final = ValueType('workers as in "cpu:2,gpu:0"', _workers, _workers, "LIST")
