"""Numbers as they are written in text, and how the cells of a column are read as numbers.

A number may have thousands separators, a currency sign or a percent sign: "$1,234.50" is 1234.5,
and "12.5%" is 12.5. "1.234" has two readings: one with a decimal point, one with a decimal comma.
A column has the reading with which most of its cells are numbers.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.raw import MAX_WHOLE, are_exact
from hogbatch.data.table.columns import MISSING, CategoryColumn, Column, NumberColumn

POINT, COMMA = DECIMALS = ".,"
MOSTLY: Final = 0.95  # a column is read in a way that reads this fraction of its cells
CURRENCY: Final = "[$€£¥₹]|USD|EUR|GBP|CHF|JPY"
BLANK: Final = "[ \u00a0\u202f]?"


def _pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    """The form of a number. Blanks and apostrophes may also separate thousands."""
    return re.compile(
        rf"(?P<open>\()?(?P<sign>[-+\u2212])?{BLANK}(?P<before>{CURRENCY})?{BLANK}(?P<minus>-)?"
        rf"(?P<whole>[1-9]\d{{0,2}}(?P<mark>[{thousands}' \u2019\u00a0\u202f])\d{{3}}"
        rf"(?:(?P=mark)\d{{3}})*|\d*)(?P<part>[{decimal}]\d*)?(?P<power>[eE][-+]?\d+)?"
        rf"{BLANK}(?P<after>{CURRENCY}|%)?(?(open)\))",
        re.ASCII,
    )


PATTERNS: Final = {POINT: _pattern(POINT, COMMA), COMMA: _pattern(COMMA, POINT)}


class Number(NamedTuple):
    """The number that a cell contains."""

    value: float
    whole: bool  # without a fraction or exponent
    unit: str = ""  # %, or a currency


class Reading(NamedTuple):
    """The distinct values of a column as numbers."""

    decimal: str  # of "1.5" or "1,5"; empty if both marks give the same numbers
    numbers: Sequence[Number | None]  # None: not a number
    lost: int  # rows with values that are no numbers
    doubtful: str = ""  # a value that the other decimal mark reads as another number, if it fits

    @property
    def whole(self) -> bool:
        """Whether all numbers are whole."""
        return all(number is None or number.whole for number in self.numbers)


def number_of(text: str) -> float | None:
    """The number that a program wrote as `text`, or None; infinity and NaN are not numbers."""
    try:
        value = float(text)
    except ValueError:
        return None
    plain = "_" not in text and text.isascii()  # float accepts 1_000 and non-ASCII digits
    return value if plain and math.isfinite(value) else None


def number_in(text: str, decimal: str) -> Number | None:
    """The number that a cell contains, or None."""
    if (decimal == POINT or POINT not in text) and (value := number_of(text)) is not None:
        return Number(value, text.lstrip("+-").isdigit())
    found = PATTERNS[decimal].fullmatch(text)
    if found is None:
        return None
    whole = found["whole"].replace(found["mark"] or POINT, "")
    rest = (found["part"] or "").replace(decimal, POINT) + (found["power"] or "")
    value = number_of(whole + rest)
    if value is None:
        return None
    negative = found["open"] or found["minus"] or found["sign"] in ("-", "\u2212")
    return Number(-value if negative else value, not rest, found["before"] or found["after"] or "")


def reading_of(column: CategoryColumn, decimal: str = "", least: float = MOSTLY) -> Reading | None:
    """The reading of a column with which most cells are numbers.

    None if less than the fraction `least` of its cells are numbers. `decimal` is the mark, if it is
    known. If both marks fit equally well, the result is that in which the mark of the first cell
    with two readings is the decimal mark.
    """
    rows = column.rows.tolist()
    most_lost = (1 - least) * sum(rows)
    found = [_read(column.values, rows, mark, most_lost) for mark in decimal or DECIMALS]
    readings = sorted(filter(None, found), key=lambda each: each.lost)
    if not readings or (least and not sum(rows)):
        return None
    if len(readings) == 1 or readings[0].lost < readings[1].lost:
        return readings[0]
    pairs = zip(*(reading.numbers for reading in readings), strict=True)
    first = next((n for n, (one, other) in enumerate(pairs) if one != other), None)
    if first is None:
        return readings[0]._replace(decimal="")
    text = column.values[first]
    return next(each for each in readings if each.decimal in text)._replace(doubtful=text)


def usual_mark(reading: Reading, comma: str) -> str:
    """The decimal mark of a doubtful reading if nothing else decides; `comma` is that of commas."""
    return POINT if reading.decimal == POINT else comma


def are_one_measure(reading: Reading) -> bool:
    """Whether the numbers can be compared, and float64 can hold them.

    They can be compared if all or none are in percent, and there are no two currencies.
    """
    known = [number for number in reading.numbers if number is not None]
    units = {number.unit for number in known}
    exact = all(not number.whole or abs(number.value) < MAX_WHOLE for number in known)
    return exact and len(units - {""}) <= 1 and ("%" not in units or len(units) == 1)


def _read(
    values: Sequence[str], rows: Sequence[int], decimal: str, most_lost: float
) -> Reading | None:
    lost, numbers = 0, list[Number | None]()
    for text, count in zip(values, rows, strict=True):
        number = number_in(text, decimal) if count else None
        if number is None and (lost := lost + count) > most_lost:
            return None
        numbers.append(number)
    return Reading(decimal, numbers, lost)


def columns_to_read_as_text(columns: Mapping[int, Column]) -> list[int]:
    """The columns of a CSV file that PyArrow has read as numbers, but whose text is needed.

    These are numbers that may be rounded whole numbers, and if columns of text contain numbers,
    those whose decimal mark may separate thousands.
    """
    floats = {
        n: column
        for n, column in columns.items()
        if isinstance(column, NumberColumn) and column.form
    }
    again = {n for n, column in floats.items() if not are_exact(column.values)}
    grouped = {n for n, column in floats.items() if _may_be_thousands(column.values)} - again
    texts = (column for column in columns.values() if isinstance(column, CategoryColumn))
    if grouped and any(reading_of(column.without(MISSING)) is not None for column in texts):
        again |= grouped
    return sorted(again)


def _may_be_thousands(values: NDArray[Any]) -> bool:
    """Whether all numbers may have been written as 1.234, or below 1000 without a mark."""
    sizes = np.abs(values[~np.isnan(values)])
    if not ((sizes < 1000) & ((sizes >= 1) | (sizes == 0))).all():
        return False
    return bool((np.abs(sizes * 1000 - np.rint(sizes * 1000)) < 1e-6).all())
