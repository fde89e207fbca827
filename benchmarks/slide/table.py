"""The table of `slide`: speed, seconds to each P@1, and the best P@1 of each run.

Covers: a run's figures from its curve, medians over seeds, the ratio to PyTorch's best.
Does not cover: training (see __main__.py).
If an update computes only some of the labels, `active` is their fraction.
"""

import math
import statistics
from collections.abc import Sequence

from benchmarks.common.report import Run, markdown, median_seconds

METRICS = ("P@1", "P@3", "P@5")
LEADING = METRICS[0]
PEER = "pytorch"  # prefix of the peers' names


def summarised(run: Run, targets: Sequence[float]) -> Run:
    """`run` with rows/s, seconds to each target (None: not reached) and metrics at the best P@1.

    Its curve holds [seconds, *METRICS] for each evaluation; metrics are rounded to five digits.
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
    """Seconds of the first evaluation with a P@1 of at least `target`; None if there is none."""
    return next((at for at, leading, *_ in curve if leading >= target), None)


def table(runs: Sequence[Run], targets: Sequence[float]) -> str:
    """Medians over seeds; failed runs are left out, runs short of the target count as infinite."""
    keys = [f"{target:g}" for target in targets]
    head = ["output layer", "rows/s", "active", *(f"s to {LEADING} {key}" for key in keys)]
    head += [f"best {LEADING}", *METRICS[1:], *(f"to {key}, over PyTorch's best" for key in keys)]
    rows = []
    rivals = [best_peer(runs, key) for key in keys]
    for name in dict.fromkeys(run["name"] for run in runs):
        chosen = [run for run in runs if run["name"] == name and run["curve"]]
        if not chosen:
            rows.append([name, "failed", *["-"] * (len(head) - 2)])
            continue
        arrivals = [median_arrival(chosen, key) for key in keys]
        best = [
            f"{statistics.median(run['best'][metric] for run in chosen):.3f}" for metric in METRICS
        ]
        speed = f"{statistics.median(run['rows_per_s'] for run in chosen):,.0f}"
        ratios = [ratio(a, b) for a, b in zip(arrivals, rivals, strict=True)]
        active = fraction([run["active"] for run in chosen if "active" in run])
        rows.append([name, speed, active, *map(cell, arrivals), *best, *ratios])
    return markdown(head, rows)


def median_arrival(runs: Sequence[Run], key: str) -> float:
    """Median seconds to the target `key`; infinite if most runs did not reach it."""
    return median_seconds(run["seconds"][key] for run in runs)


def best_peer(runs: Sequence[Run], key: str) -> float:
    """The lowest median of a peer; infinite without one."""
    by_name: dict[str, list[Run]] = {}
    for run in runs:
        if run["name"].startswith(PEER) and run["curve"]:
            by_name.setdefault(run["name"], []).append(run)
    return min((median_arrival(each, key) for each in by_name.values()), default=math.inf)


def fraction(found: Sequence[float]) -> str:
    """The median of fractions in percent; "-" for none."""
    return f"{statistics.median(found):.2%}" if found else "-"


def cell(seconds: float) -> str:
    """Seconds for the table."""
    return "not met" if math.isinf(seconds) else f"{seconds:.3g}"


def ratio(seconds: float, rival: float) -> str:
    """Below 1 is faster than the peer; "-" if either did not arrive or the peer started there."""
    return "-" if math.isinf(seconds + rival) or not rival else f"{seconds / rival:.2f}"
