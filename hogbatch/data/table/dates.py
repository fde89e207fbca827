"""Dates in text: ISO 8601, and the usual orders of day, month and year."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

ISO: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?Z?")
FORMATS: Final = (  # month before day only if no value contradicts it
    "%Y/%m/%d",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%d.%m.%Y",
    "%m-%d-%Y",
    "%d-%m-%Y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%b %d, %Y",
)
TIMES: Final = ("", " %H:%M", " %H:%M:%S", "T%H:%M:%S")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def seconds_of(values: Sequence[str]) -> NDArray[np.float64] | None:
    """The seconds since 1970 of dates that all have one format; None for other text."""
    if not values or not any(map(str.isdigit, values[0])):
        return None
    if ISO.fullmatch(values[0]):
        return _iso(values)
    for date in FORMATS:
        for time in TIMES:
            if _parse(values[0], date + time) is not None:
                found = [_parse(value, date + time) for value in values]
                if None not in found:
                    return np.array(found, np.float64)
    return None


def _iso(values: Sequence[str]) -> NDArray[np.float64] | None:
    if not all(map(ISO.fullmatch, values)):
        return None
    try:
        dates = np.array([value.rstrip("Z") for value in values], "datetime64[ms]")
    except ValueError:  # such as month 13
        return None
    return dates.astype(np.int64) / 1000.0


def _parse(value: str, form: str) -> float | None:
    try:
        return (datetime.strptime(value, form).replace(tzinfo=UTC) - EPOCH).total_seconds()
    except ValueError:
        return None
