"""The comparison as JSON and Markdown: medians over seeds, ratios, and whether they are allowed."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Final

from benchmarks.common.report import markdown
from benchmarks.rehearsal_truth.runs import MODES, SETS

Json = dict[str, Any]
ALLOWED: Final = {"rows": 0.15, "seconds": 0.20}  # relative difference of the medians
LEAST_SPEED: Final = 0.5  # of rehearsals, relative to one real core
REQUIRED: Final = ("cpu:1", "cpu:2", "cpu:1,gpu:host")  # others are compared, but may differ


def comparisons(results: Iterable[Json]) -> list[Json]:
    """One entry for each set and list of workers."""
    whole = [result for result in results if not result["error"]]
    pairs = dict.fromkeys((result["set"], result["workers"]) for result in whole)
    return [_entry(whole, *pair) for pair in pairs]


def _entry(results: Sequence[Json], set_name: str, workers: str) -> Json:
    """Medians for a set and a list of workers, over the seeds with both runs."""
    chosen = {
        mode: {
            r["seed"]: r
            for r in results
            if (r["set"], r["workers"], r["mode"]) == (set_name, workers, mode)
        }
        for mode in MODES
    }
    seeds = sorted(chosen["real"].keys() & chosen["rehearsed"].keys())
    entry: Json = {"set": set_name, "workers": workers, "seeds": len(seeds)}
    for axis in ALLOWED:
        real, rehearsed = ([chosen[mode][seed][axis] for seed in seeds] for mode in MODES)
        entry[axis] = _compared(real, rehearsed, ALLOWED[axis])
    return entry


def _compared(
    real: Sequence[float | None], rehearsed: Sequence[float | None], allowed: float
) -> Json:
    """Medians and ranges of both, their ratio, and whether it is allowed.

    A median is None if most runs did not reach the target.
    """
    found = [_median(values) for values in (real, rehearsed)]
    ratio = found[1] / found[0] if found[0] and found[1] else None
    return {
        "real": found[0],
        "rehearsed": found[1],
        "real_range": _range(real),
        "rehearsed_range": _range(rehearsed),
        "ratio": ratio,
        "allowed": ratio is not None and abs(ratio - 1) <= allowed,
    }


def _median(values: Sequence[float | None]) -> float | None:
    if not values:
        return None
    middle = statistics.median_high(math.inf if value is None else value for value in values)
    return None if math.isinf(middle) else middle


def _range(values: Sequence[float | None]) -> list[float] | None:
    finite = [value for value in values if value is not None]
    return [min(finite), max(finite)] if finite else None


def differences(entries: Iterable[Json]) -> list[str]:
    """One line for each difference that is larger than allowed."""
    found = []
    for entry in entries:
        where = f"{entry['set']}, {entry['workers']}"
        if entry["workers"] in REQUIRED:
            for axis, allowed in ALLOWED.items():
                if not entry[axis]["allowed"]:
                    found.append(
                        f"{where}: {axis} {_ratio(entry[axis])} of the real ones; allowed: "
                        f"{1 - allowed:.2f} to {1 + allowed:.2f}"
                    )
    return found


def slow(speeds: Iterable[Json]) -> list[str]:
    """One line for each rehearsal that is slower than required."""
    return [
        f"{each['set']}, {each['server']}, {each['workers'] or 'default'}: speed "
        f"{each['speed']:.2f}; expected at least {LEAST_SPEED}"
        for each in speeds
        if not each["error"] and each["speed"] < LEAST_SPEED
    ]


def speed_table(speeds: Iterable[Json]) -> str:
    """Rehearsed rows per real second, with the rows/s of one real core."""
    head = ["set", "server", "workers", "rehearsed rows/s", "rows/s of one real core", "ratio"]
    rows = [
        [
            *(each["set"], each["server"], each["workers"] or "default"),
            *(f"{each[key]:,.0f}" for key in ("rows_per_s", "core_rows_per_s")),
            f"{each['speed']:.2f}",
        ]
        for each in speeds
        if not each["error"]
    ]
    return markdown(head, rows)


def table(entries: Iterable[Json]) -> str:
    """One row for each set and list of workers; ranges are those of the seeds."""
    head = ["set, target", "workers", "seeds", "rows, real", "rows, rehearsed", "ratio"]
    head += ["seconds, real", "seconds, rehearsed", "ratio"]
    rows = []
    for entry in entries:
        truth_set = SETS[entry["set"]]
        target = truth_set.target
        metric = truth_set.case.metric
        shown = f"{metric} {1 - target:.3g}" if metric else f"{target:g}"
        row = [f"{entry['set']}, {shown}", entry["workers"], f"{entry['seeds']}"]
        for axis in ALLOWED:
            row += [_cell(entry[axis], mode) for mode in MODES]
            mark = "" if entry[axis]["allowed"] else " (outside)"
            row.append(f"{_ratio(entry[axis])}{mark}")
        rows.append(row)
    return markdown(head, rows)


def _cell(compared: Json, mode: str) -> str:
    """A median with the range of the seeds."""
    if compared[mode] is None:
        return "not reached"
    low, high = compared[f"{mode}_range"]
    return f"{_number(compared[mode])} ({_number(low)} to {_number(high)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _ratio(compared: Json) -> str:
    return "-" if compared["ratio"] is None else f"{compared['ratio']:.2f}"
