"""Dates in text: ISO 8601, times of day, the usual orders of day, month and year, and months."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

ISO: Final = "ISO 8601"
ISO_PATTERN: Final = re.compile(
    r"(\d{4}-\d\d(?:-\d\d)?)Z?"
    r"|(\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)(?:Z|([+-]\d\d)(?::?(\d\d))?)?"
)
CLOCK: Final = "time of day"
CLOCK_PATTERN: Final = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?")
DAYS: Final = (  # month before day only if no value contradicts it
    "%Y/%m/%d",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%d.%m.%Y",
    "%m-%d-%Y",
    "%d-%m-%Y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%b %d, %Y",
    "%d %B %Y",
    "%B %d, %Y",
)
TIMES: Final = ("", " %H:%M", " %H:%M:%S", "T%H:%M:%S")
MONTHS: Final = ("%Y/%m", "%m/%Y", "%b %Y", "%B %Y", "%b-%Y", "%b-%y")
FORMATS: Final = (ISO, CLOCK, *(day + time for day in DAYS for time in TIMES), *MONTHS)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SAMPLE: Final = 20  # values of which one must be a date


def format_of(values: Sequence[str], rows: NDArray[np.int64], least: float) -> str | None:
    """The format in which most `rows` of each value are dates; the first one of several.

    None if less than the fraction `least` of the rows are dates.
    """
    sample = [value for value in values[:SAMPLE] if any(map(str.isdigit, value))]
    best, most = None, max(1, least * rows.sum())
    for form in FORMATS:
        if all(np.isnan(seconds_in([value], form)[0]) for value in sample):
            continue
        count = rows[~np.isnan(seconds_in(values, form))].sum()
        if count >= most and (best is None or count > most):
            best, most = form, count
    return best


def seconds_in(values: Sequence[str], form: str) -> NDArray[np.float64]:
    """The seconds since 1970 of dates in a format; NaN for other text."""
    parse = PARSERS.get(form, _parse)
    return np.array([parse(value, form) for value in values], np.float64)


def _iso(value: str, _: str) -> float:
    """A date with an offset from UTC becomes UTC."""
    found = ISO_PATTERN.fullmatch(value)
    if found is None:
        return np.nan
    day, moment, hours, minutes = found.groups()
    try:
        local = float(np.datetime64(day or moment, "ms").astype(np.int64)) / 1000
    except ValueError:  # such as month 13
        return np.nan
    if hours is None:
        return local
    return local - 60 * (60 * int(hours) + int(f"{hours[0]}{minutes or 0}"))


def _clock(value: str, _: str) -> float:
    found = CLOCK_PATTERN.fullmatch(value)
    if found is None:
        return np.nan
    hours, minutes, seconds = map(float, found.groups(default="0"))
    return 3600 * hours + 60 * minutes + seconds


def _parse(value: str, form: str) -> float:
    try:
        return (datetime.strptime(value, form).replace(tzinfo=UTC) - EPOCH).total_seconds()
    except ValueError:
        return np.nan


PARSERS: Final = {ISO: _iso, CLOCK: _clock}
