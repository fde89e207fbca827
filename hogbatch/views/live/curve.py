"""Curves made of characters: braille with 2x4 dots each, or ASCII with three heights each."""

import math
from collections.abc import Sequence
from statistics import quantiles
from typing import Final

Point = tuple[float, float]  # training seconds, value

BRAILLE: Final = 0x2800
DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # by column, from the top
ASCII: Final = "'-."  # by height, from the top
FEWEST_FOR_RANGE: Final = 8  # points from which on the range leaves out outliers
OUTLIER: Final = 3.0  # times the distance of the quartiles beyond them


def curve(points: Sequence[Point], width: int, height: int, unicode: bool) -> list[str]:
    """The course of a value in `height` lines of `width` characters.

    The highest value is at the top. Values that are not finite are left out, and outliers are at
    the edge.
    """
    across, down = (2, 4) if unicode else (1, len(ASCII))
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    places = _places(finite, width * across, height * down)
    if not unicode:
        return _ascii(places, width, height)
    cells = [[0] * width for _ in range(height)]
    for x, ys in enumerate(places):
        for y in ys:
            cells[y // 4][x // 2] |= DOTS[x % 2][y % 4]
    return ["".join(chr(BRAILLE + cell) if cell else " " for cell in row) for row in cells]


def _ascii(places: Sequence[range], width: int, height: int) -> list[str]:
    rows = [[" "] * width for _ in range(height)]
    for x, ys in enumerate(places):
        for y in ys:
            row, part = divmod(y, len(ASCII))
            rows[row][x] = ASCII[part] if rows[row][x] == " " else "|"
    return ["".join(row) for row in rows]


def _places(points: Sequence[Point], width: int, height: int) -> list[range]:
    """The places from the top that are marked in each of `width` columns: a connected line."""
    places = [range(0)] * width
    if not points or not width or not height:
        return places
    low, high = value_range([y for _, y in points])
    heights = _heights(points, width)
    before = None
    for x, value in enumerate(heights):
        if value is None:
            continue
        share = (min(high, max(low, value)) - low) / (high - low) if high > low else 0.5
        y = round((1 - share) * (height - 1))
        if before is None or abs(before - y) <= 1:
            places[x] = range(y, y + 1)
        else:  # connect the line with the column before
            places[x] = range(y, before) if y < before else range(before + 1, y + 1)
        before = y
    return places


def _heights(points: Sequence[Point], width: int) -> list[float | None]:
    """The value in each column: the last one there, or between two points on a straight line."""
    first, last = points[0][0], points[-1][0]
    span = last - first
    if span <= 0:
        return [points[-1][1], *[None] * (width - 1)]
    values: list[float | None] = []
    at = 0
    for column in range(width):
        x = first + span * column / max(1, width - 1)
        while at + 1 < len(points) and points[at + 1][0] <= x:
            at += 1
        (x1, y1), (x2, y2) = points[at], points[min(at + 1, len(points) - 1)]
        part = (x - x1) / (x2 - x1) if x2 > x1 else 0.0
        values.append(y1 + (y2 - y1) * min(1.0, max(0.0, part)))
    return values


def value_range(values: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest value that a curve shows, without outliers."""
    low, high = min(values), max(values)
    if len(values) < FEWEST_FOR_RANGE:
        return low, high
    first, _, third = quantiles(values, n=4)
    reach = OUTLIER * (third - first)
    return (max(low, first - reach), min(high, third + reach)) if reach > 0 else (low, high)
