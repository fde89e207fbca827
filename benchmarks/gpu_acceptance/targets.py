"""Decides from the records of the stages which targets were reached.

A target is unknown if one of its measurements is missing or cannot be compared.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from benchmarks.gpu_acceptance.step import PAPER, PRECISIONS

Json = dict[str, Any]
Records = Mapping[str, Json]  # by stage

REACHED, MISSED, UNKNOWN = "reached", "not reached", "unknown"
NETWORKS: Final = tuple(PAPER.split(","))
SIZES: Final = (256, 8192)  # the sizes from 256 rows up that must be measured at least
SETS: Final = ("w8a", "covtype", "delicious", "imdb", "citeulike")
RECORDED: Final = ("hogbatch", "written out")  # the steps that a worker takes
COMPARED: Final = ("cpu", "gpu", "adaptive")  # kinds of runs
ENOUGH_SEEDS: Final = 3
FEW_SEEDS_ERROR: Final = 0.1  # of a ratio of fewer seeds, as a fraction of the limit


class TargetResult(NamedTuple):
    """Whether one target was reached."""

    target: str
    state: str
    detail: str


class Item(NamedTuple):
    """One measured part of a target; without a value it was not measured."""

    name: str
    value: float | None
    limit: float
    at_least: bool = False  # the value must be the limit or more; else the limit or less
    error: float = 0.0  # of the value, as a fraction of the limit

    @property
    def state(self) -> str:
        """Whether it is within its limit; unknown if the error is too large to tell."""
        if self.value is None:
            return UNKNOWN
        if self.error and abs(self.value - self.limit) <= self.error * self.limit:
            return UNKNOWN
        good = self.value >= self.limit if self.at_least else self.value <= self.limit
        return REACHED if good else MISSED


def target_results(records: Records) -> list[TargetResult]:
    """The results of all targets; what was measured with small sizes does not count."""
    records = {
        stage: record
        for stage, record in records.items()
        if not record["about"].get("settings", {}).get("quick")
    }
    return [
        combined("speed alone at least PyTorch's with CUDA graphs, from 256 rows", alone(records)),
        combined("at least 0.7 of the speed of the products at 8192 rows", ceiling(records)),
        combined("merging takes at most 10 % of the time", merging(records)),
        combined(
            "adaptive at most the time of the better device alone", adaptive(records, limit=1.0)
        ),
        two_sets(adaptive(records, limit=0.8)),
    ]


def combined(target: str, items: Iterable[Item]) -> TargetResult:
    """Missed if any item is, else unknown if any is, else reached."""
    items = list(items)
    states = {item.state for item in items}
    state = next((s for s in (MISSED, UNKNOWN) if s in states), REACHED if items else UNKNOWN)
    return TargetResult(target, state, described(items))


def described(items: list[Item]) -> str:
    """The worst measured item, and how many are unknown."""
    measured = [item for item in items if item.value is not None]
    parts = []
    if measured:
        sign = -1 if measured[0].at_least else 1
        worst = max(measured, key=lambda item: sign * (item.value or 0.0) / item.limit)
        parts.append(f"worst of {len(measured)}: {worst.value:.2f}, {worst.name}")
    unclear = [item.name for item in measured if item.state == UNKNOWN]
    parts += counted("too close to the limit", unclear)
    parts += counted("not measured", [item.name for item in items if item.value is None])
    return "; ".join(parts)


def counted(what: str, names: list[str]) -> list[str]:
    """How many items there are and the first name; nothing without any."""
    return [f"{len(names)} {what}: {names[0]}" + ", ..." * (len(names) > 1)] if names else []


def steps(records: Records) -> dict[tuple[str, str, int], Json]:
    """The results of gpu_step against CUDA graphs, by network, precision and rows."""
    results: dict[tuple[str, str, int], Json] = {}
    for each in measurements(records, "step"):
        result = each.get("value")
        if isinstance(result, dict) and "rows_per_second" in result:
            key = result["network"], result["precision"], result["batch"]
            if key not in results or "graph" in result["rows_per_second"]:
                results[key] = result
    return results


def alone(records: Records) -> Iterable[Item]:
    """The speed over that of PyTorch's graph, at each size from 256 rows up."""
    results = steps(records)
    sizes = {(n, p, b) for n in NETWORKS for p in PRECISIONS for b in SIZES}
    sizes |= {key for key in results if key[0] in NETWORKS and key[2] >= min(SIZES)}
    for key in sorted(sizes):
        result = results.get(key)
        value = over_graph(result) if result else None
        yield Item(f"{key[0]}, {key[1]}, {key[2]} rows", value, 1.0, at_least=True)


def over_graph(result: Json) -> float | None:
    """Speed over that of PyTorch's graph; None if their times cannot be compared."""
    speeds, wrong = result["rows_per_second"], {*result["mismatched"], *result["diverged"]}
    ours = [speeds[name] for name in RECORDED if name in speeds and name not in wrong]
    if not ours or "graph" not in speeds or "graph" in wrong:
        return None
    return float(max(ours) / speeds["graph"])


def ceiling(records: Records) -> Iterable[Item]:
    """The speed over that of the products alone, at 8192 rows."""
    found = steps(records)
    for network in NETWORKS:
        for precision in PRECISIONS:
            result = found.get((network, precision, 8192))
            wrong = result and {*result["mismatched"], *result["diverged"]} & {*RECORDED}
            value = None if result is None or wrong else result["of_products"]
            yield Item(f"{network}, {precision}", value, 0.7, at_least=True)


def merging(records: Records) -> Iterable[Item]:
    """The fraction of the time in which merges kept the GPU from training, beside CPU workers."""
    for which in ("a9a", "w8a", "citeulike"):
        fractions = [
            each["value"]["merging"]
            for each in measurements(records, "cli")
            if each["name"].startswith(f"{which} cpu:") and "error" not in each
            if "value" in each
        ]
        yield Item(which, fractions[0] if fractions else None, 0.1)


def adaptive(records: Records, limit: float) -> list[Item]:
    """The seconds of adaptive over those of the better device alone, on each data set.

    A ratio of few runs has an error, because the seconds differ from seed to seed.
    """
    items = []
    for which in SETS:
        seconds = seconds_of(records, which)
        value = over_better(seconds)
        seeds = 0 if value is None else min(len(seconds[kind]) for kind in COMPARED)
        error = FEW_SEEDS_ERROR if seeds < ENOUGH_SEEDS else 0.0
        name = f"{which} ({seeds} seed{'s' * (seeds > 1)})" if seeds else which
        items.append(Item(name, value, limit, error=error))
    return items


def seconds_of(records: Records, which: str) -> dict[str, list[float]]:
    """Seconds to the target by kind of run, one per seed; infinite if it was not reached."""
    seconds: dict[str, list[float]] = {}
    for each in measurements(records, "together"):
        run = each.get("value")
        if isinstance(run, dict) and run.get("set") == which and "error" not in each:
            reached = run["seconds"]
            seconds.setdefault(run["name"], []).append(math.inf if reached is None else reached)
    return seconds


def over_better(seconds: Mapping[str, list[float]]) -> float | None:
    """The ratio of the medians; None if a kind of run is missing, or no device alone arrived."""
    if not seconds.keys() >= set(COMPARED):
        return None
    middle = {name: sorted(each)[len(each) // 2] for name, each in seconds.items()}
    better = min(middle["cpu"], middle["gpu"])
    return None if math.isinf(better) else middle["adaptive"] / better


def two_sets(items: list[Item]) -> TargetResult:
    """Whether two data sets are within their limit."""
    known = [item for item in items if item.state != UNKNOWN]
    good = [item.name for item in known if item.state == REACHED]
    state = REACHED if len(good) >= 2 else MISSED if len(known) == len(items) else UNKNOWN
    measured = sum(item.value is not None for item in items)
    detail = f"on {len(good)} of {measured} measured" + (f": {', '.join(good)}" if good else "")
    return TargetResult("adaptive at most 0.8 of that time on two data sets", state, detail)


def measurements(records: Records, stage: str) -> list[Json]:
    """The measurements of a stage."""
    found: list[Json] = records.get(stage, {}).get("measurements", [])
    return found
