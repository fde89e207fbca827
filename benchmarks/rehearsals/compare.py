"""Compares the methods of one place (set and server): medians over seeds, ratios."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from benchmarks.rehearsals.methods import ALONE, TOGETHER

Json = dict[str, Any]


class Timing(NamedTuple):
    """Medians over the seeds of one method to one target; infinite if most did not reach it."""

    method: str
    seconds: float
    rows: float
    lasted: float  # median simulated seconds of all runs, whether they reached it or not
    runs: int
    failed: int  # of these runs

    @property
    def reached(self) -> bool:
        """Whether most runs reached the target."""
        return math.isfinite(self.seconds)


def places(results: Iterable[Json]) -> list[tuple[str, str]]:
    """The pairs (set, server) with results, in the order of the results."""
    return list(dict.fromkeys((result["set"], result["server"]) for result in results))


def at_place(results: Iterable[Json], place: tuple[str, str]) -> list[Json]:
    """The results of one set and server."""
    return [result for result in results if (result["set"], result["server"]) == place]


def timing(results: Iterable[Json], method: str, target: str) -> Timing | None:
    """The timing of a method to a target; None if it did not run."""
    chosen = [result for result in results if result["method"] == method]
    whole = [result for result in chosen if not result["error"]]
    if not chosen:
        return None
    reached = [result["reached"][target] for result in whole]
    return Timing(
        method,
        _median(at and at["seconds"] for at in reached),
        _median(at and at["rows"] for at in reached),
        statistics.median([result["train_seconds"] for result in whole] or [0.0]),
        len(chosen),
        len(chosen) - len(whole),
    )


def best_of(results: Sequence[Json], kinds: Iterable[str], target: str) -> Timing | None:
    """The fastest method among those of `kinds`; None if none of them ran without failing.

    If none reached the target, the one that ended first: no time after its end is known.
    """
    names = dict.fromkeys(result["method"] for result in results if result["kind"] in kinds)
    found = [timing(results, name, target) for name in names]
    whole = [each for each in found if each and each.failed < each.runs]
    return min(whole, key=lambda each: (each.seconds, each.lasted), default=None)


def failed_alone(results: Iterable[Json]) -> list[str]:
    """The kinds of devices alone of which every run failed: the better one is then unknown."""
    chosen = [result for result in results if result["kind"] in ALONE]
    whole = {result["kind"] for result in chosen if not result["error"]}
    return [kind for kind in dict.fromkeys(r["kind"] for r in chosen) if kind not in whole]


def factor(ours: Timing, better: Timing) -> tuple[str, float]:
    """The seconds of `ours` over those of the better device alone, as (sign, ratio).

    ("=", x) if both reached the target; a bound, (">", x), if only `better` did, and ("<", x) if
    only `ours` did; ("?", nan) if neither did.
    """
    if ours.reached and better.reached:
        return "=", ours.seconds / better.seconds if better.seconds else 1.0
    if better.reached:
        return ">", ours.lasted / better.seconds if better.seconds else math.inf
    if ours.reached:
        return "<", ours.seconds / better.lasted if better.lasted else 1.0
    return "?", math.nan


def median_result(results: Iterable[Json], method: str) -> Json | None:
    """The run of a method with the median seconds to the late target; None if all failed."""
    chosen = [r for r in results if r["method"] == method and not r["error"]]
    chosen.sort(key=_late)
    return chosen[len(chosen) // 2] if chosen else None


def comparison(results: Sequence[Json], target: str) -> Json:
    """One entry of matrix.json: all methods at one place, to one target."""
    failed = failed_alone(results)
    better = None if failed else best_of(results, ALONE, target)
    names = dict.fromkeys(result["method"] for result in results)
    timings = {name: timing(results, name, target) for name in names}
    ratios = {
        name: factor(ours, better)
        for name in TOGETHER
        if better and (ours := timings.get(name)) and ours.failed < ours.runs
    }
    set_name, server = results[0]["set"], results[0]["server"]
    return {
        "set": set_name,
        "server": server,
        "target": target,
        "methods": {name: _shown(each) for name, each in timings.items() if each},
        "best": {
            kind: found.method
            for kind in ALONE
            if (found := best_of(results, [kind], target)) and found.reached
        },
        "failed_alone": failed,
        "better_alone": better.method if better and better.reached else None,
        "factors": {
            name: {"bound": bound, "value": x if math.isfinite(x) else None}
            for name, (bound, x) in ratios.items()
        },
    }


def _shown(found: Timing) -> Json:
    """A timing for JSON, in which infinity is null."""
    return {k: None if v == math.inf else v for k, v in found._asdict().items()}


def _median(values: Iterable[float | None]) -> float:
    """The median; None counts as infinite, and so does having no values."""
    found = [math.inf if value is None else value for value in values]
    return statistics.median_high(found) if found else math.inf


def _late(result: Json) -> float:
    at = result["reached"]["late"]
    return at["seconds"] if at else math.inf
