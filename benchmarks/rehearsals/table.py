"""The matrix as JSON and as a Markdown table."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.common import report
from benchmarks.common.report import markdown
from benchmarks.rehearsals.compare import (
    Timing,
    at_place,
    best_of,
    comparison,
    factor,
    failed_alone,
    places,
    timing,
)
from benchmarks.rehearsals.methods import ALONE, TOGETHER, batch_of
from benchmarks.rehearsals.sets import SETS

Json = dict[str, Any]
HEAD = (
    *("set, target", "server", "CPU alone, default", "CPU alone, best fixed"),
    *("Hogwild threads alone, best fixed", "GPU alone, best fixed", "GPUs alone, best fixed"),
    *(*TOGETHER, *(f"{name} / better alone" for name in TOGETHER)),
)


def comparisons(results: Sequence[Json]) -> list[Json]:
    """The entries of matrix.json, one for each set, server and target."""
    return [
        comparison(at_place(results, place), target) | {"shown": SETS[place[0]].shown(target)}
        for place in places(results)
        for target in SETS[place[0]].targets
    ]


def table(results: Sequence[Json]) -> str:
    """One row for each set, server and target: seconds and rows, medians over the seeds."""
    rows = [
        _row(at_place(results, place), target)
        for place in places(results)
        for target in SETS[place[0]].targets
    ]
    return markdown(HEAD, rows)


def _row(results: Sequence[Json], target: str) -> list[str]:
    set_name, server = results[0]["set"], results[0]["server"]
    failed = failed_alone(results)
    better = None if failed else best_of(results, ALONE, target)
    fixed = [result for result in results if batch_of(result["method"])]
    default = [result for result in results if not batch_of(result["method"])]
    timings = [
        best_of(default, ["cpu"], target) or _failed(default, "cpu", target),
        *(
            best_of(fixed, [kind], target) or _failed(fixed, kind, target)
            for kind in ("cpu", "hogwild", "gpu", "gpus")
        ),
        *(timing(results, name, target) for name in TOGETHER),
    ]
    return [
        f"{set_name}, {SETS[set_name].shown(target)}",
        server,
        *map(timing_cell, timings),
        *(factor_cell(timing(results, name, target), better, failed) for name in TOGETHER),
    ]


def _failed(results: Iterable[Json], kind: str, target: str) -> Timing | None:
    """The timing of a kind of device of which every run failed; None if none ran."""
    failed = [result for result in results if result["kind"] == kind]
    return timing(failed, failed[0]["method"], target) if failed else None


def timing_cell(timing: Timing | None) -> str:
    """Seconds, rows and the batch size or the reason why there are none."""
    if timing is None:
        return "-"
    if timing.failed == timing.runs:
        return "failed"
    setting = timing.method.partition("-")[2].replace("-", ", ").replace("threads", " threads")
    where = f" ({setting})" if setting else ""
    failed = f", {timing.failed} of {timing.runs} failed" if timing.failed else ""
    if not timing.reached:
        return f"not in {timing.lasted:.3g} s{where}{failed}"
    return f"{timing.seconds:.3g} s, {thousands(timing.rows)} rows{where}{failed}"


def thousands(rows: float) -> str:
    """Rows, with three digits."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if rows >= size:
            return f"{rows / size:.3g}{unit}"
    return f"{rows:.0f}"


def factor_cell(ours: Timing | None, better: Timing | None, failed: Sequence[str] = ()) -> str:
    """The factor over the better device alone, or a bound of it; "-" if there is neither.

    `failed`: the kinds of devices of which every run failed.
    """
    if failed:
        return f"- ({', '.join(failed)} failed)"
    if ours is None or better is None or ours.failed == ours.runs:
        return "-"
    bound, value = factor(ours, better)
    if math.isnan(value):
        return "-"
    return f"{value:.2f}" if bound == "=" else f"{bound} {value:.2f}"


def failures(results: Iterable[Json]) -> str:
    """The cells that failed, one line each, with the end of their message."""
    lines = [
        f"- {', '.join(r[key] for key in ('set', 'server', 'method'))}, seed {r['seed']}: "
        f"{report.last_line(r['error'])}"
        for r in results
        if r["error"]
    ]
    return "\n".join(lines)
