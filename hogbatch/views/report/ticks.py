"""Positions and texts of ticks, and the ranges of axes: arithmetic only."""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

STEPS: Final = (1, 2, 5, 10)  # of ticks, times a power of ten
PADDING: Final = 0.05  # of the range of an axis, on both sides
LARGEST: Final = 1e100  # values beyond it are not drawn


class Tick(NamedTuple):
    """A position on an axis and its text."""

    value: float
    text: str


class Span(NamedTuple):
    """The range of an axis; low < high, and both are positive if it is logarithmic."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value lies: 0 at `low`, 1 at `high`."""
        if self.log:
            low, high, value = math.log(self.low), math.log(self.high), math.log(value)
            return (value - low) / (high - low)
        return (value - self.low) / (self.high - self.low)


def is_drawable(value: float | None) -> bool:
    """Whether a value can be drawn: it exists, is finite, and not absurdly large."""
    return value is not None and abs(value) <= LARGEST


def linear_span(values: Iterable[float], *, from_zero: bool = False) -> Span:
    """A range that contains all values, with some space around them unless it starts at 0."""
    found = list(values) or [0.0, 1.0]
    low, high = min(found), max(found)
    if from_zero and low >= 0:
        return Span(0.0, high or 1.0)
    padding = PADDING * (high - low) or 0.1 * abs(high) or 1.0
    lowest = low - padding
    return Span(max(0.0, lowest) if low >= 0 else lowest, high + padding)


def log_span(values: Iterable[float]) -> Span:
    """A logarithmic range that contains all values, which are positive."""
    found = list(values) or [1.0, 10.0]
    low, high = math.log(min(found)), math.log(max(found))
    padding = max(PADDING * (high - low), math.log(1.25))
    return Span(math.exp(low - padding), math.exp(high + padding), log=True)


def power_of_two_span(values: Iterable[float]) -> Span:
    """A logarithmic range around all values >= 1, with at least three powers of two."""
    found = list(values) or [1.0]
    low, high = math.floor(math.log2(min(found))), math.ceil(math.log2(max(found)))
    if high - low < 2:
        low, high = max(0, low - 1), high + 1
    return Span(2.0 ** (low - 0.4), 2.0 ** (high + 0.4), log=True)


def ticks(span: Span, most: int) -> list[Tick]:
    """At most about `most` round positions within a range."""
    return _log_ticks(span, most) if span.log else linear_ticks(span.low, span.high, most)


def linear_ticks(low: float, high: float, most: int) -> list[Tick]:
    """Multiples of 1, 2 or 5 times a power of ten from `low` to `high`; `most` >= 2."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in STEPS if power * factor >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [Tick(n * step, number(n * step, step)) for n in range(first, last + 1)]


def power_of_two_ticks(span: Span, most: int) -> list[Tick]:
    """Powers of two, evenly chosen if there are more than `most`."""
    first, last = math.ceil(math.log2(span.low)), math.floor(math.log2(span.high))
    stride = max(1, math.ceil((last - first + 1) / most))
    return [Tick(2.0**n, number(2.0**n, 1)) for n in range(first, last + 1, stride)]


def _log_ticks(span: Span, most: int) -> list[Tick]:
    first, last = math.floor(math.log10(span.low)), math.ceil(math.log10(span.high))
    stride = max(1, math.ceil((last - first) / most))
    for factors in ((1,), (1, 3), (1, 2, 5)):
        values = [f * 10.0**n for n in range(first, last + 1, stride) for f in factors]
        inside = [value for value in values if span.low <= value <= span.high]
        if len(inside) > 2:
            return [Tick(value, number(value, value)) for value in inside]
    return linear_ticks(span.low, span.high, most)


def number(value: float, step: float) -> str:
    """A number with the digits that tell it from one that is `step` > 0 away, as "0.25" or "3M"."""
    if value == 0:
        return "0"
    digits = max(0, math.floor(math.log10(abs(value))) - math.floor(math.log10(step) + 1e-9))
    if abs(value) >= 1e9 or step < 1e-4:
        mantissa, exponent = f"{value:.{digits}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value:,.{max(0, -math.floor(math.log10(step) + 1e-9))}f}"
