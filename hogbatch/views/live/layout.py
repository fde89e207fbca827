"""Selects the parts of a run that a frame shows, and their numbers of lines."""

from dataclasses import dataclass
from typing import Final

from hogbatch.views.live.capabilities import Size

FEW_WORKERS: Final = 2
PLOT_LINES: Final = (3, 5, 10)  # least, usual and most
EVENTS: Final = (1, 4, 8)  # few, usual and most


@dataclass(frozen=True, slots=True)
class Wanted:
    """The lines that the parts of a frame have to show."""

    progress: int  # epoch, run and target
    figures: bool  # losses and metrics
    curves: bool  # at least two evaluations
    workers: int
    events: int


@dataclass(slots=True)
class FrameLayout:
    """The lines of each part, from top to bottom."""

    width: int
    header: int = 0  # the state of the run, and what it is busy with
    progress: int = 0
    figures: int = 0
    plot: int = 0
    workers: int = 0  # with the heading of the table
    events: int = 0
    gap: int = 0  # empty lines between the parts

    @property
    def height(self) -> int:
        """The lines of the whole frame."""
        parts = (self.header + self.progress, self.figures + self.plot, self.workers, self.events)
        used = [lines for lines in parts if lines]
        return sum(used) + self.gap * (len(used) - 1)


def layout(size: Size, wanted: Wanted) -> FrameLayout:
    """The layout for a terminal: the most important parts first, then more of each.

    A column on the right and a line below stay free: no line of a frame wraps, and the cursor
    stands below the frame without scrolling the terminal.
    """
    chosen = FrameLayout(size.width - 1)
    room = size.height - 1

    def grow(part: str, lines: int, least: int = 1) -> None:
        """Give a part up to `lines` lines, as far as there is room, but not below `least`."""
        before = getattr(chosen, part)
        for count in range(lines, max(before, least - 1), -1):
            setattr(chosen, part, count)
            if chosen.height <= room:
                return
        setattr(chosen, part, before)

    table = wanted.workers and wanted.workers + 1
    grow("header", 2)
    grow("progress", min(1, wanted.progress))
    grow("figures", int(wanted.figures))
    grow("workers", min(table, FEW_WORKERS + 1), least=2)
    grow("events", min(EVENTS[0], wanted.events))
    grow("progress", wanted.progress)
    grow("gap", 1)
    if wanted.curves:
        _grow_plot(chosen, room, *PLOT_LINES[:2])
    grow("workers", table)
    grow("events", min(EVENTS[1], wanted.events))
    if wanted.curves and chosen.plot:
        _grow_plot(chosen, room, *PLOT_LINES[1:])
    grow("events", min(EVENTS[2], wanted.events))
    return chosen


def _grow_plot(chosen: FrameLayout, room: int, least: int, most: int) -> None:
    """Give the curves from `least` to `most` lines, or leave them as they are."""
    lines = min(most, chosen.plot + room - chosen.height)
    chosen.plot = lines if lines >= least else chosen.plot
