"""The cost of merging, as a GPU worker measured it at its start and wrote it into its log."""

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

LINE: Final = re.compile(
    r"measured batches \(rows, seconds\): (?P<profile>.*?); a merge blocks training for "
    r"(?P<blocking>[\d.]+) ms and takes (?P<background>[\d.]+) ms in the background; "
    r"merging every (?P<every>\d+) batches of (?P<batch>\d+) rows"
)


def merging(run_dir: Path) -> dict[str, Any] | None:
    """The measurement in the log of a run's GPU worker; None if there is no such line."""
    for path in sorted(run_dir.glob("worker-*.log")):
        if found := LINE.search(path.read_text(errors="replace")):
            return parsed(found)
    return None


def parsed(line: re.Match[str]) -> dict[str, Any]:
    """The numbers of the line, with the fraction of an interval for which a merge blocks."""
    profile = [tuple(each) for each in ast.literal_eval(line["profile"])]
    every, batch = int(line["every"]), int(line["batch"])
    blocking_s, background_s = (float(line[name]) / 1e3 for name in ("blocking", "background"))
    interval_s = every * seconds_of(profile, batch)
    return {
        "profile": profile,
        "blocking_s": blocking_s,
        "background_s": background_s,
        "every": every,
        "batch": batch,
        "fraction": blocking_s / (interval_s + blocking_s),
        "background_over_interval": background_s / interval_s,
    }


def seconds_of(profile: Sequence[tuple[int, float]], batch: int) -> float:
    """Seconds of a batch, in proportion to the nearest measured size."""
    rows, seconds = min(profile, key=lambda pair: abs(pair[0] - batch))
    return seconds * batch / rows
