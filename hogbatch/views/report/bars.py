"""Bar charts and time lines as SVG: names stand above their bars, so they may be long."""

from collections.abc import Iterator
from typing import Final

from hogbatch.views.report.figure import Bar, BarChart, Lane, Style, Timeline
from hogbatch.views.report.markup import Markup, coordinate, element, shortened
from hogbatch.views.report.plots import (
    CHARACTER,
    COLOURS,
    RIGHT,
    WIDTH,
    below,
    colour_class,
    marker,
    svg,
    x_ticks,
)
from hogbatch.views.report.tables import seconds_text
from hogbatch.views.report.ticks import Span

ROW: Final = 32.0  # height of a bar with its name
LEFT: Final = 4.0
INNER: Final = WIDTH - LEFT - RIGHT
CROSS: Final = "m-4-4l8 8m0-8l-8 8"


def bars_svg(chart: BarChart) -> Markup:
    """A bar chart with at least one bar."""
    parts, y, group = [], 0.0, ""
    for bar in chart.bars:
        if bar.group and bar.group != group:
            group = bar.group
            y += 20
            heading = shortened(group, int(INNER / CHARACTER))
            parts.append(element("text", heading, class_="label", x=LEFT, y=y))
            y += 2
        parts += _bar(bar, y)
        y += ROW
    about = "; ".join(f"{bar.group} {bar.name}: {bar.text}".strip() for bar in chart.bars)
    return svg(chart.title, f"{about}.", y + 6, parts)


def _bar(bar: Bar, y: float) -> Iterator[Markup]:
    room = int(INNER / CHARACTER) - len(bar.text) - 2
    yield element("text", shortened(bar.name, max(8, room)), x=LEFT, y=y + 14)
    yield element("text", bar.text, x=WIDTH - RIGHT, y=y + 14, text_anchor="end")
    yield element("rect", class_="track", x=LEFT, y=y + 19, width=INNER, height=9, rx=2)
    width = INNER * min(1.0, max(0.0, bar.value))
    colour = f"bar c{bar.colour % COLOURS}"
    yield element("rect", class_=colour, x=LEFT, y=y + 19, width=width, height=9, rx=2)


def timeline_svg(timeline: Timeline) -> Markup:
    """A time line with at least one lane."""
    span = Span(0.0, timeline.seconds or 1.0)
    bottom = ROW * len(timeline.lanes) + 8
    parts = []
    for tick in x_ticks(span, INNER):
        x = _across(span, tick.value)
        parts.append(element("path", class_="grid", d=f"M{coordinate(x)} 0V{coordinate(bottom)}"))
        parts.append(below(tick, x, bottom + 14))
    for number, lane in enumerate(timeline.lanes):
        parts += _lane(lane, span, ROW * number, number)
    middle = LEFT + INNER / 2
    label = element(
        "text", "training seconds", class_="label", x=middle, y=bottom + 31, text_anchor="middle"
    )
    about = "; ".join(map(_words, timeline.lanes))
    return svg(timeline.title, f"{about}.", bottom + 36, [*parts, label])


def _across(span: Span, seconds: float) -> float:
    return LEFT + INNER * min(1.0, span.place(seconds))


def _lane(lane: Lane, span: Span, y: float, number: int) -> Iterator[Markup]:
    count = f" ({lane.count:,})" if lane.count else ""
    name = shortened(lane.name, int(INNER / CHARACTER) - len(count)) + count
    yield element("text", name, class_="above", x=LEFT, y=y + 14)
    middle = coordinate(y + 24)
    if lane.present is None:
        shape = marker(Style(0, 0, lane.marker))
        marks = "".join(
            f"M{coordinate(_across(span, moment))} {middle}{shape}" for moment in lane.moments
        )
        yield element("path", class_="marker text", d=marks)
        return
    colour = colour_class(Style.number(number))
    trained = _without(lane.present, lane.parked)
    for intervals, kind in ((trained, "thick"), (lane.parked, "thin")):
        drawn = "".join(
            f"M{coordinate(_across(span, start))} {middle}H{coordinate(_across(span, stop))}"
            for start, stop in intervals
        )
        if drawn:
            yield element("path", class_=f"{kind} {colour}", d=drawn)
    if lane.lost is not None:
        x = min(_across(span, lane.lost), WIDTH - 6)
        yield element("path", class_="cross", d=f"M{coordinate(x)} {middle}{CROSS}")


def _without(
    whole: tuple[float, float], parts: tuple[tuple[float, float], ...]
) -> list[tuple[float, float]]:
    """An interval without those within it, which are in order."""
    left, start = [], whole[0]
    for begin, end in parts:
        if begin > start:
            left.append((start, begin))
        start = max(start, end)
    return [*left, (start, whole[1])] if start < whole[1] else left


def _words(lane: Lane) -> str:
    if lane.present is None:
        return f"{lane.name}: {lane.count:,}"
    start, end = lane.present
    parked = (
        f", parked for {seconds_text(sum(b - a for a, b in lane.parked))} s" if lane.parked else ""
    )
    lost = ", then lost" if lane.lost is not None else ""
    return f"{lane.name}: from {seconds_text(start)} to {seconds_text(end)} s{parked}{lost}"
