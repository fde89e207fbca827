"""What slide.py found, as a table: pace, seconds to each P@1, and the best P@1 of each.

Covers: a run's figures from its curve, medians over seeds, the ratio to PyTorch's best.
Does not cover: training (see slide.py).
Where an update computes some of the labels alone, `active` is their share.
"""

import math
import statistics
from collections.abc import Sequence
from typing import Any

METRICS = ("P@1", "P@3", "P@5")
LEADING = METRICS[0]
PEER = "pytorch"  # how the names of peers begin

Run = dict[str, Any]


def summed_up(run: Run, targets: Sequence[float]) -> Run:
    """`run` with rows/s, seconds to each target (null: not met) and metrics at the best P@1.

    Its curve has [seconds, *METRICS] for each evaluation; five digits of them are kept.
    """
    curve = [[round(at, 4), *(float(f"{x:.5g}") for x in found)] for at, *found in run["curve"]]
    if not curve:
        return run
    best = max(curve, key=lambda point: point[1])
    return run | {
        "rows_per_s": round(run["rows"] / curve[-1][0]) if curve[-1][0] else 0,
        "seconds": {f"{target:g}": arrival(curve, target) for target in targets},
        "best": dict(zip(METRICS, best[1:], strict=True)),
        "curve": curve,
    }


def arrival(curve: Sequence[Sequence[float]], target: float) -> float | None:
    """Seconds at which a P@1 of `target` was first seen; None if never."""
    return next((at for at, leading, *_ in curve if leading >= target), None)


def table(runs: Sequence[Run], targets: Sequence[float]) -> str:
    """Medians over seeds; a run that did not arrive counts as endless, a failed one not at all."""
    keys = [f"{target:g}" for target in targets]
    head = ["output layer", "rows/s", "active", *(f"s to {LEADING} {key}" for key in keys)]
    head += [f"best {LEADING}", *METRICS[1:], *(f"to {key}, over PyTorch's best" for key in keys)]
    lines = [head, ["---"] * len(head)]
    rivals = [best_of(runs, key) for key in keys]
    for name in dict.fromkeys(run["name"] for run in runs):
        mine = [run for run in runs if run["name"] == name and run["curve"]]
        if not mine:
            lines.append([name, "failed", *["-"] * (len(head) - 2)])
            continue
        arrivals = [median_arrival(mine, key) for key in keys]
        best = [
            f"{statistics.median(run['best'][metric] for run in mine):.3f}" for metric in METRICS
        ]
        pace = f"{statistics.median(run['rows_per_s'] for run in mine):,.0f}"
        ratios = [ratio(a, b) for a, b in zip(arrivals, rivals, strict=True)]
        active = fraction([run["active"] for run in mine if "active" in run])
        lines.append([name, pace, active, *map(cell, arrivals), *best, *ratios])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def median_arrival(runs: Sequence[Run], key: str) -> float:
    """Of runs that did not fail; infinite where most did not arrive."""
    found = [run["seconds"][key] for run in runs]
    return statistics.median(math.inf if each is None else each for each in found)


def best_of(runs: Sequence[Run], key: str) -> float:
    """The least median of a peer; infinite without one."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        if run["name"].startswith(PEER) and run["curve"]:
            by_name.setdefault(run["name"], []).append(run)
    return min((median_arrival(each, key) for each in by_name.values()), default=math.inf)


def fraction(found: Sequence[float]) -> str:
    """The median of shares for the table; "-" of none."""
    return f"{statistics.median(found):.2%}" if found else "-"


def cell(seconds: float) -> str:
    """Seconds for the table."""
    return "not met" if math.isinf(seconds) else f"{seconds:.3g}"


def ratio(seconds: float, rival: float) -> str:
    """Below 1 is sooner; "-" where either did not arrive, or the rival began there."""
    return "-" if math.isinf(seconds + rival) or not rival else f"{seconds / rival:.2f}"
