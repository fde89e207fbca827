"""Contents of a figure: curves, bars or lanes, as numbers and words, independent of SVG."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from hogbatch.views.report.ticks import is_drawable

Point = tuple[float, float]
MAX_POINTS: Final = 240  # of a curve
MAX_CURVES: Final = 12  # in a figure
SECONDS: Final = "training seconds"


class Look(Enum):
    """How the values of an axis are drawn."""

    LINEAR = "linear"
    FROM_ZERO = "from zero"
    LOG_IF_WIDE = "logarithmic if the values differ by a large factor"
    POWERS_OF_TWO = "logarithmic, with powers of two as ticks"


@dataclass(frozen=True, slots=True)
class Style:
    """How a curve differs from others: each number counts the colours, dashes or markers."""

    colour: int
    dash: int
    marker: int

    @classmethod
    def number(cls, number: int) -> "Style":
        """The style of one of several curves: colour, dash and marker all differ."""
        return cls(number, number, number)


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve in one or more parts; between them, values are missing."""

    name: str
    parts: tuple[tuple[Point, ...], ...]
    style: Style
    steps: bool = False  # a value holds until the next point

    @property
    def points(self) -> list[Point]:
        """The points of all parts."""
        return [point for part in self.parts for point in part]


@dataclass(frozen=True, slots=True)
class Plot:
    """Curves over a horizontal axis that starts at 0."""

    title: str
    x: str  # the label of an axis, with its unit
    y: str
    curves: tuple[Curve, ...]
    look: Look = Look.LINEAR
    note: str = ""  # what is shown, in a sentence or two
    empty: str = ""  # what is said if there is no point
    diagonal: bool = False  # also draw y = x

    @property
    def drawn(self) -> tuple[Curve, ...]:
        """The curves that have points."""
        return tuple(curve for curve in self.curves if curve.points)


@dataclass(frozen=True, slots=True)
class Bar:
    """A fraction with its name."""

    name: str
    value: float  # 0 to 1
    text: str
    colour: int
    group: str = ""  # a heading above the first bar of each group


@dataclass(frozen=True, slots=True)
class BarChart:
    """Horizontal bars with their names and values."""

    title: str
    bars: tuple[Bar, ...]
    note: str = ""
    empty: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """What happens to one worker, or the times of one kind of event, in training seconds."""

    name: str
    present: tuple[float, float] | None = None  # of a worker
    parked: tuple[tuple[float, float], ...] = ()
    lost: float | None = None  # when
    moments: tuple[float, ...] = ()  # when something happened
    count: int = 0  # how often, which may be more than there are `moments`
    marker: int = 0


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lanes over the same training seconds, from 0 to `seconds`."""

    title: str
    seconds: float
    lanes: tuple[Lane, ...]
    note: str = ""
    empty: str = ""


Figure = Plot | BarChart | Timeline


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table in words; the first cell of a row is its heading."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()  # columns that are aligned on the right
    words: int | None = None  # the column with sentences
    note: str = ""
    styles: tuple[Style, ...] = field(default=())  # of the curves that the rows stand for
    beneath: frozenset[int] = frozenset()  # rows that belong to one above them


def curve(
    name: str,
    points: Iterable[tuple[float, float | None]],
    style: Style,
    *,
    steps: bool = False,
    most: int = MAX_POINTS,
) -> Curve:
    """A curve through points, without those that are missing or cannot be drawn."""
    parts: list[list[Point]] = [[]]
    for x, y in points:
        if y is not None and is_drawable(y) and is_drawable(x):
            parts[-1].append((float(x), float(y)))
        elif parts[-1]:
            parts.append([])
    whole = [part for part in parts if part][-most:]
    total = sum(map(len, whole))
    shares = [max(2, most * len(part) // total) for part in whole]
    kept = [tuple(thinned(part, share)) for part, share in zip(whole, shares, strict=True)]
    return Curve(name, tuple(kept), style, steps)


def thinned(points: Sequence[Point], most: int) -> Sequence[Point]:
    """At most `most` >= 2 of the points, with the ends and with the extremes of each interval."""
    if len(points) <= most:
        return points
    if most < 4:
        return [points[0], points[-1]]
    inner = points[1:-1]
    intervals = (most - 2) // 2
    kept = [points[0]]
    for n in range(intervals):
        part = inner[n * len(inner) // intervals : (n + 1) * len(inner) // intervals]
        low, high = min(part, key=_y), max(part, key=_y)
        kept += [low] if low == high else sorted((low, high))
    return [*kept, points[-1]]


def _y(point: Point) -> float:
    return point[1]
