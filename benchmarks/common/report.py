"""Results as JSON files and Markdown tables, and medians over seeds."""

import json
import math
import os
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import machine

Run = dict[str, Any]  # one training run: "set", "name", "seed", "seconds", ...

OURS = "hogbatch"  # the name of our own runs in results


def write(path: Path | None, results: Sequence[dict[str, Any]], **settings: Any) -> None:
    """Write `results` with the machine's description and `settings` to `path`, if one is given."""
    if path:
        content = {"about": machine.describe() | settings, "results": results}
        replace(path, json.dumps(content, indent=2) + "\n")


def replace(path: Path, text: str) -> None:
    """Write `text` to `path` atomically: if the process is killed, the old contents remain."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write_runs(path: Path | None, content: dict[str, Any]) -> None:
    """Write {"about": ..., "runs": ...} as one line to `path`, if one is given."""
    if path:
        replace(path, json.dumps(content) + "\n")


def last_line(error: str) -> str:
    """The last line of an error, where a traceback has its message."""
    return (error.strip().splitlines() or [""])[-1]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def median_seconds(seconds: Iterable[float | None]) -> float:
    """Median of seconds to a target; a run that did not reach it (None) counts as infinite."""
    return statistics.median(math.inf if each is None else each for each in seconds)


def medians(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Median seconds to the target by data set and name."""
    by_set: dict[str, dict[str, list[float | None]]] = {}
    for run in runs:
        by_set.setdefault(run["set"], {}).setdefault(run["name"], []).append(run["seconds"])
    return {
        which: {name: median_seconds(seconds) for name, seconds in by_name.items()}
        for which, by_name in by_set.items()
    }


def seconds_cell(seconds: float | None, limit_s: float) -> str:
    """Seconds for a table; None: not measured; infinity: target not reached within the limit."""
    if seconds is None:
        return "-"
    return f"> {limit_s:g} s" if math.isinf(seconds) else f"{seconds:.3g} s"


def median_run(runs: Sequence[Run]) -> Run:
    """The run with the median seconds: of two the slower; runs without seconds come last."""
    seconds = [math.inf if run["seconds"] is None else run["seconds"] for run in runs]
    order = sorted(range(len(runs)), key=seconds.__getitem__)
    return runs[order[len(runs) // 2]]


def median_runs(runs: Sequence[Run], which: str) -> dict[str, Run]:
    """The median run of each name on the data set `which`."""
    names = dict.fromkeys(run["name"] for run in runs if run["set"] == which)
    return {
        name: median_run([run for run in runs if (run["set"], run["name"]) == (which, name)])
        for name in names
    }
