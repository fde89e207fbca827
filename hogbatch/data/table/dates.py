"""Dates in text: ISO 8601, times of day, and the usual orders of day, month and year."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

ISO: Final = re.compile(
    r"(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?)(?:Z|([+-]\d\d)(?::?(\d\d))?)?"
)
CLOCK: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?")
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
    if CLOCK.fullmatch(values[0]):
        return _clock(values)
    for date in FORMATS:
        for time in TIMES:
            if _parse(values[0], date + time) is not None:
                found = [_parse(value, date + time) for value in values]
                if None not in found:
                    return np.array(found, np.float64)
    return None


def _iso(values: Sequence[str]) -> NDArray[np.float64] | None:
    """Dates with an offset from UTC become UTC."""
    found = [ISO.fullmatch(value) for value in values]
    parts = [match.groups(default="") for match in found if match is not None]
    if len(parts) < len(values):
        return None
    try:
        dates = np.array([date for date, _, _ in parts], "datetime64[ms]")
    except ValueError:  # such as month 13
        return None
    offsets = [
        60 * int(hours or 0) + int(f"{hours[:1]}{minutes or 0}") for _, hours, minutes in parts
    ]
    return dates.astype(np.int64) / 1000.0 - 60.0 * np.array(offsets)


def _clock(values: Sequence[str]) -> NDArray[np.float64] | None:
    """Times of day, as seconds."""
    found = [CLOCK.fullmatch(value) for value in values]
    parts = [match.groups(default="0") for match in found if match is not None]
    if len(parts) < len(values):
        return None
    return np.array(parts, np.float64) @ (3600.0, 60.0, 1.0)


def _parse(value: str, form: str) -> float | None:
    try:
        return (datetime.strptime(value, form).replace(tzinfo=UTC) - EPOCH).total_seconds()
    except ValueError:
        return None
