"""A figure of a report, drawn by Matplotlib, as SVG within the page."""

import io
import math
import re
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Final

from matplotlib import style
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from hogbatch.machine.printable import printable
from hogbatch.views.report.markup import Markup, element

WIDTH: Final = 5.0  # of a figure, in inches
MAX_NAME: Final = 50  # characters in a figure
LARGEST: Final = 1e30  # values beyond it are not drawn
WIDE: Final = 30.0  # ratio of values from which an axis is logarithmic
MARKERS_PER_CURVE: Final = 12
COLOURS: Final = (
    *("#0067a8", "#c24e00", "#00795a", "#9b3f80"),
    *("#59636e", "#8a5a00", "#c0243c", "#0a7f94"),
)
DASHES: Final = ("-", "--", ":", "-.", (0, (8, 2, 2, 2, 2, 2)))
MARKERS: Final = "os^Dv*P"
SETTINGS: Final = {
    "axes.edgecolor": "#545d68",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.unicode_minus": False,
    "figure.figsize": (WIDTH, 2.8),
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "grid.color": "#d5dae0",
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "savefig.bbox": "tight",
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "hogbatch",
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "text.parse_math": False,  # a name may contain "$"
}
NO_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def chart_settings() -> AbstractContextManager[None]:
    """The settings with which charts are made and drawn, in place of those of the user."""
    return style.context(["default", SETTINGS])


def colour(number: int) -> str:
    """The colour of the curve or row of this number."""
    return COLOURS[number % len(COLOURS)]


class Chart:
    """A figure with a title, and a note about what it shows; `axes` are those of Matplotlib.

    `empty` is said in place of a figure on which nothing was drawn. Names of runs and workers must
    be passed through `name`.
    """

    def __init__(self, title: str, x: str = "", y: str = "", note: str = "", empty: str = ""):
        self.title, self.note, self.empty = title, note, empty
        self._figure = Figure()
        self.axes = self._figure.subplots()
        self.axes.set(xlabel=x, ylabel=y)
        self.axes.set_axisbelow(True)
        self._rows: list[str] = []

    @staticmethod
    def name(text: str) -> str:
        """A name for a figure: printable, and without its middle if it is long."""
        return printable(printable(text), MAX_NAME)

    def line(
        self,
        name: str,
        points: Iterable[tuple[float, float | None]],
        number: int,
        dash: int | None = None,
        **options: Any,
    ) -> None:
        """A curve through points, with gaps where values are missing or cannot be drawn.

        Curves of different `number` differ in colour, marker and, unless `dash` is given, dashes.
        """
        drawn = [(x, math.nan if y is None else y) for x, y in points if abs(x) <= LARGEST]
        drawn = [(x, y if abs(y) <= LARGEST else math.nan) for x, y in drawn]
        if all(math.isnan(y) for _, y in drawn):
            return
        self.axes.plot(
            *zip(*drawn, strict=True),
            color=colour(number),
            linestyle=DASHES[(number if dash is None else dash) % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)],
            markevery=-(-len(drawn) // MARKERS_PER_CURVE),
            label=f" {self.name(name)}",  # Matplotlib omits a label that begins with "_"
            **options,
        )

    def add_row(self, name: str) -> int:
        """Add a row for horizontal bars or marks, below those that exist; return its position."""
        self._rows.append(self.name(name))
        last = len(self._rows) - 1
        self.axes.set_yticks(range(last + 1), self._rows)
        self.axes.set_ylim(last + 0.6, -0.6)
        self.axes.grid(axis="y", visible=False)
        self._figure.set_figheight(0.8 + 0.25 * len(self._rows))
        return last

    def bar(self, name: str, length: float, text: str, number: int) -> None:
        """A row with a horizontal bar in the colour of this number, and a text beside it."""
        bar = self.axes.barh(self.add_row(name), length, color=colour(number))
        self.axes.bar_label(bar, [text], padding=3)

    def log_if_wide(self) -> None:
        """Make the vertical axis logarithmic if its values differ by a large factor."""
        low, high = self.axes.dataLim.intervaly
        if 0 < WIDE * low < high:
            self.set_log(10)

    def set_log(self, base: int) -> None:
        """Make the vertical axis logarithmic, with ticks at the powers of `base`."""
        self.axes.set_yscale("log", base=base)
        self.axes.yaxis.set_major_locator(LogLocator(base, (1, 3) if base == 10 else (1,)))
        self.axes.yaxis.set_major_formatter("{x:g}")
        self.axes.yaxis.set_minor_formatter(NullFormatter())

    def svg(self) -> Markup | None:
        """The figure with a legend of its curves, if it has any; None if nothing was drawn."""
        if not self.axes.has_data():
            return None
        if self.axes.dataLim.x0 >= 0:
            self.axes.set_xlim(left=0)
        handles, labels = self.axes.get_legend_handles_labels()
        if handles:
            self.axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(0, -0.2))
        file = io.StringIO()
        with warnings.catch_warnings(action="ignore"):  # of characters that the font does not have
            self._figure.savefig(file, format="svg", metadata=NO_METADATA)
        found = re.search(r'viewBox="([\d. ]+)"[^>]*>(.*)</svg>', file.getvalue(), re.DOTALL)
        assert found is not None
        # Only elements in <defs> are referred to by their ids.
        content = re.sub(r'<g id="[^"]*"', "<g", re.sub(r"\n +", "\n", found[2]))
        title = element("title", self.title)
        return element("svg", title, Markup(content), viewBox=found[1], role="img")
