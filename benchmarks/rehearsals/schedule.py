"""The maximum simulated seconds of each cell, and the remaining real time."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.rehearsals.cell import Cell
from benchmarks.rehearsals.methods import ALONE

Json = dict[str, Any]


def limit(results: Iterable[Json], cell: Cell, within: float) -> float | None:
    """The maximum simulated seconds of a cell; None: unlimited, so that it ends by its epochs.

    It is `within` times the time in which the best device alone has reached the late target so far,
    with any seed. If a better one is found later, the limit becomes lower. So a cell that did not
    reach its target before its limit is not within `within` times the final best either.
    """
    seconds: list[float] = [
        result["reached"]["late"]["seconds"]
        for result in results
        if (result["set"], result["server"]) == cell.place
        and result["kind"] in ALONE
        and not result["error"]
        and result["reached"]["late"]
    ]
    return within * min(seconds) if seconds else None


def expected_wall_s(results: Sequence[Json], cell: Cell) -> float:
    """Expected real seconds of a cell: the median of the most similar cells that have run.

    If none of its set has run: its rough time, times the median ratio of measured to rough times of
    other sets.
    """
    done = [result for result in results if not result["error"]]
    similar: Sequence[Callable[[Json], bool]] = (
        lambda r: (r["set"], r["server"], r["method"]) == (*cell.place, cell.method.name),
        lambda r: (r["set"], r["method"]) == (cell.set_name, cell.method.name),
        lambda r: r["set"] == cell.set_name,
    )
    for alike in similar:
        if found := [result["wall_s"] for result in done if alike(result)]:
            return float(statistics.median(found))
    ratios = [result["wall_s"] / result["rough_wall_s"] for result in done]
    return cell.rough_wall_s * (statistics.median(ratios) if ratios else 1.0)


def remaining_s(results: Sequence[Json], cells: Iterable[Cell], jobs: int) -> float:
    """Expected real seconds until all of `cells` have run in `jobs` processes."""
    return sum(expected_wall_s(results, cell) for cell in cells) / jobs


def as_duration(seconds: float) -> str:
    """Seconds as text, in seconds, minutes or hours."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
