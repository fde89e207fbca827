"""Plots as SVG: axes, grid, curves and markers."""

from collections.abc import Iterable, Sequence
from typing import Final

from hogbatch.views.report.figure import Curve, Look, Plot, Point, Style
from hogbatch.views.report.markup import Markup, coordinate, element, joined
from hogbatch.views.report.ticks import (
    Span,
    Tick,
    linear_span,
    log_span,
    number,
    power_of_two_span,
    power_of_two_ticks,
    ticks,
)

WIDTH: Final = 360.0  # of every figure, in units of SVG; text is 12 units high
HEIGHT: Final = 230.0
TOP: Final = 24.0  # space for labels around the plot
RIGHT: Final = 14.0
BOTTOM: Final = 38.0
CHARACTER: Final = 7.0  # width of a character, rather too much
WIDE: Final = 30.0  # ratio of values from which an axis is logarithmic
COLOURS: Final = 8  # as many as style.css has
DASHES: Final = (None, "6 3", "2 3", "9 3 2 3", "12 4")
MARKERS: Final = (  # around a point, as commands of a path
    "m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
    "m-2.8-2.8h5.6v5.6h-5.6z",
    "m0-3.6l3.6 6.4h-7.2z",
    "m0-4l4 4-4 4-4-4z",
    "m0 3.6l3.6-6.4h-7.2z",
    "m-1.2-3.6h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4z",
    "m-3.4-1.6h6.8v3.2h-6.8z",
)
MARKED: Final = 24  # a curve with more points has markers at some of them
MARKERS_OF_LONG: Final = 7


def plot_svg(plot: Plot) -> Markup:
    """A plot with at least one point."""
    points = [point for curve in plot.drawn for point in curve.points]
    x_span = linear_span((x for x, _ in points), from_zero=True)
    y_span = span_of([y for _, y in points], plot.look)
    if plot.diagonal:
        x_span = y_span = Span(0.0, 1.0)
    chosen = power_of_two_ticks if plot.look is Look.POWERS_OF_TWO else ticks
    frame = Frame(x_span, y_span, chosen(y_span, 5))
    parts = [*frame.axes(plot.x, plot.y)]
    if plot.diagonal:
        ends = f"M{frame.at((0, 0))}L{frame.at((1, 1))}"
        parts.append(element("path", class_="axis", d=ends, stroke_dasharray="3 3"))
    parts += [part for curve in plot.drawn for part in frame.curve(curve)]
    return svg(plot.title, description(plot), HEIGHT, parts)


def span_of(values: Sequence[float], look: Look) -> Span:
    """The range of the vertical axis for these values."""
    match look:
        case Look.POWERS_OF_TWO:
            return power_of_two_span(values)
        case Look.FROM_ZERO:
            low, high, _ = linear_span(values, from_zero=True)
            return Span(low, high + 0.05 * (high - low))
        case Look.LOG_IF_WIDE if min(values) > 0 and max(values) > WIDE * min(values):
            return log_span(values)
    return linear_span(values)


class Frame:
    """The area between the axes of a plot."""

    def __init__(self, x: Span, y: Span, y_ticks: Sequence[Tick]) -> None:
        self._x, self._y, self._y_ticks = x, y, y_ticks
        self.left = 8 + CHARACTER * max((len(tick.text) for tick in y_ticks), default=0)
        self.width = WIDTH - RIGHT - self.left
        self.height = HEIGHT - TOP - BOTTOM

    def at(self, point: Point) -> str:
        """The position of a point, as in a path."""
        return f"{self._across(point[0])} {self._down(point[1])}"

    def _across(self, x: float) -> str:
        return coordinate(self.left + self.width * self._x.place(x))

    def _down(self, y: float) -> str:
        return coordinate(TOP + self.height * (1 - self._y.place(y)))

    def axes(self, x_label: str, y_label: str) -> Iterable[Markup]:
        """Grid, ticks and labels."""
        right, bottom = coordinate(WIDTH - RIGHT), coordinate(HEIGHT - BOTTOM)
        left = coordinate(self.left)
        grid = "".join(f"M{left} {self._down(tick.value)}H{right}" for tick in self._y_ticks)
        yield element("path", class_="grid", d=grid)
        yield element("path", class_="axis", d=f"M{left} {bottom}H{right}")
        for tick in self._y_ticks:
            y = float(self._down(tick.value)) + 4
            yield element("text", tick.text, x=self.left - 6, y=y, text_anchor="end")
        for tick in x_ticks(self._x, self.width):
            yield below(tick, float(self._across(tick.value)), HEIGHT - 22)
        yield element("text", y_label, class_="label", x=2, y=13)
        middle = self.left + self.width / 2
        yield element("text", x_label, class_="label", x=middle, y=HEIGHT - 5, text_anchor="middle")

    def curve(self, curve: Curve) -> Iterable[Markup]:
        """The line of a curve, and its markers."""
        line = "".join(self._line(part, steps=curve.steps) for part in curve.parts)
        colour = colour_class(curve.style)
        yield element("path", class_=f"line {colour}", d=line, stroke_dasharray=dash(curve.style))
        marks = "".join(f"M{self.at(point)}{marker(curve.style)}" for point in marked(curve.points))
        yield element("path", class_=f"marker {colour}", d=marks)

    def _line(self, part: Sequence[Point], *, steps: bool) -> str:
        if not steps:
            return "M" + "L".join(map(self.at, part))
        first, *rest = part
        moves = "".join(f"H{self._across(x)}V{self._down(y)}" for x, y in rest)
        return f"M{self.at(first)}{moves}"


def x_ticks(span: Span, width: float) -> list[Tick]:
    """The ticks of a horizontal axis of this width, with space between their texts."""
    for most in (6, 5, 4, 3, 2):
        chosen = ticks(span, most)
        longest = max((len(tick.text) for tick in chosen), default=1)
        if len(chosen) * CHARACTER * (longest + 2) <= width:
            break
    return chosen


def below(tick: Tick, x: float, y: float) -> Markup:
    """The text of a tick below a horizontal axis, centred unless it would leave the figure."""
    half = CHARACTER * len(tick.text) / 2
    anchor = "start" if x < half else "end" if x + half > WIDTH else "middle"
    return element("text", tick.text, x=x, y=y, text_anchor=anchor)


def marked(points: Sequence[Point]) -> Sequence[Point]:
    """The points of a curve that have markers: all, or a few if there are many."""
    if len(points) <= MARKED:
        return points
    last = len(points) - 1
    return [points[n * last // (MARKERS_OF_LONG - 1)] for n in range(MARKERS_OF_LONG)]


def colour_class(style: Style) -> str:
    """The class of the colour of a curve."""
    return f"c{style.colour % COLOURS}"


def dash(style: Style) -> str | None:
    """The lengths of the dashes of a curve; None: it is solid."""
    return DASHES[style.dash % len(DASHES)]


def marker(style: Style) -> str:
    """The marker of a curve, as commands of a path that follow its position."""
    return MARKERS[style.marker % len(MARKERS)]


def swatch(style: Style, *, line: bool = True) -> Markup:
    """A small drawing of the line and the marker of a curve, for legends."""
    colour = colour_class(style)
    parts = [element("path", class_=f"marker {colour}", d=f"M17 7{marker(style)}")]
    if line:
        d = "M1 7H33"
        parts.insert(0, element("path", class_=f"line {colour}", d=d, stroke_dasharray=dash(style)))
    box = "0 0 34 14" if line else "10 0 14 14"
    kind = "swatch" if line else "swatch small"
    return element("svg", *parts, class_=kind, viewBox=box, aria_hidden="true")


def svg(title: str, about: str, height: float, parts: Iterable[Markup]) -> Markup:
    """A figure with its title and description, which screen readers say."""
    return element(
        "svg",
        element("title", title),
        element("desc", about),
        joined(parts),
        viewBox=f"0 0 {coordinate(WIDTH)} {coordinate(height)}",
        role="img",
        aria_label=f"{title}. {about}",
    )


def description(plot: Plot) -> str:
    """What the curves of a plot show, in words."""
    return "; ".join(map(_summary, plot.drawn)) + f"; {plot.y} against {plot.x}."


def _summary(curve: Curve) -> str:
    points = curve.points
    values = [y for _, y in points]
    spread = (max(values) - min(values)) / 100 or abs(values[0]) / 100
    first, last, low, high = (
        number(value, spread) for value in (values[0], values[-1], min(values), max(values))
    )
    return f"{curve.name}: from {first} to {last}, lowest {low}, highest {high}"
