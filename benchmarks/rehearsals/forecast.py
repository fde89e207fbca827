"""Forecasts the cells of a matrix and their minutes before any of them runs."""

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from benchmarks.common.report import markdown
from benchmarks.rehearsals.cell import Cell

HEAD = ("set, server", "cells", "minutes", "at most", "methods")


def forecast(cells: Sequence[Cell], jobs: int) -> str:
    """Tables of expected cells and minutes in `jobs` processes; "at most": with all epochs."""
    places = [[*row, _methods(found)] for found, row in _groups(cells, jobs, " on ".join)]
    parts = [markdown(HEAD, places)]
    for number, what in enumerate(("set", "server")):
        rows = [row for _, row in _groups(cells, jobs, itemgetter(number))]
        parts.append(markdown([what, *HEAD[1:4]], rows))
    for _, (_, count, minutes, most) in _groups(cells, jobs, lambda place: "all"):
        parts.append(f"{count} cells, about {minutes} min, at most {most} min")
    return "\n\n".join(parts)


def _groups(
    cells: Iterable[Cell], jobs: int, key: Callable[[tuple[str, str]], str]
) -> list[tuple[list[Cell], list[str]]]:
    """The cells with the same key of their place, with [key, cells, minutes, most minutes]."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell.place), []).append(cell)
    return [
        (
            group,
            [name, f"{len(group)}", *(f"{seconds / 60 / jobs:.1f}" for seconds in _sums(group))],
        )
        for name, group in groups.items()
    ]


def _sums(cells: Sequence[Cell]) -> tuple[float, float]:
    return sum(cell.rough_wall_s for cell in cells), sum(cell.most_s for cell in cells)


def _methods(cells: Iterable[Cell]) -> str:
    return " ".join(dict.fromkeys(cell.method.name for cell in cells))
