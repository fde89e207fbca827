"""What the results say: a Markdown table of each half, means over its sets, and what is worse."""

import math
from collections.abc import Collection, Sequence
from statistics import fmean, median, stdev
from typing import Any, Final

from benchmarks.common import report
from benchmarks.tables.cases import CASES, CHOOSING, REPORTED

Result = dict[str, Any]  # of one fit: "set", "model", "seed", "seconds" and what was measured
SHIFT: Final = 0.01  # so that sets with tiny errors do not decide a geometric mean
SIMPLE: Final = ("linear", "mlp")


def of(results: Sequence[Result], name: str, model: str, what: str = "") -> dict[int, float]:
    """What was measured of a model on a set, by seed; the default is the measure of the set."""
    chosen = [each for each in results if (each["set"], each["model"]) == (name, model)]
    return {each["seed"]: each[what or CASES[name].measure] for each in chosen}


def shifted_mean(values: Collection[float]) -> float:
    """Geometric mean of the values plus `SHIFT`, minus `SHIFT`."""
    return math.exp(fmean(math.log(value + SHIFT) for value in values)) - SHIFT


def worse(results: Sequence[Result], name: str, model: str) -> bool:
    """Whether a model is worse than the better of `SIMPLE` by more than a standard error.

    That of the mean difference over the splits that both have, if they are two or more.
    """
    ours = of(results, name, model)
    simple = [found for each in SIMPLE if (found := of(results, name, each))]
    better = min(simple, key=lambda found: fmean(found.values()), default={})
    differences = [ours[seed] - better[seed] for seed in ours if seed in better]
    if len(differences) < 2 or model in SIMPLE:
        return False
    return fmean(differences) > stdev(differences) / math.sqrt(len(differences))


def tables(results: Sequence[Result]) -> str:
    """Markdown: the sets of each half that were measured."""
    models = list(dict.fromkeys(each["model"] for each in results))
    found = {each["set"] for each in results}
    halves = {"Choosing": CHOOSING, "Reported": REPORTED}
    return "\n\n".join(
        f"{title}:\n\n{_table(results, names, models)}"
        for title, half in halves.items()
        if (names := [name for name in half if name in found])
    )


def _table(results: Sequence[Result], names: Sequence[str], models: Sequence[str]) -> str:
    """A row for each set, and the means over the sets that all models have."""
    rows = [
        [name, CASES[name].measure, *(cell(results, name, model) for model in models)]
        for name in names
    ]
    for kind, classes in (("classes", True), ("numbers", False)):
        chosen = [name for name in names if CASES[name].classes == classes]
        errors = [[of(results, name, model) for model in models] for name in chosen]
        shared = [[fmean(each.values()) for each in found] for found in errors if all(found)]
        means = [f"{shifted_mean(column):.4f}" for column in zip(*shared, strict=True)]
        rows += [[f"mean of {len(shared)}", kind, *means]] if shared else []
    return report.markdown(["set", "measure", *models], rows)


def cell(results: Sequence[Result], name: str, model: str) -> str:
    """Mean error, a star if it is :func:`worse`, and median seconds."""
    if not (errors := of(results, name, model)):
        return "-"
    star = "\\*" if worse(results, name, model) else ""
    seconds = median(of(results, name, model, "seconds").values())
    return f"{fmean(errors.values()):.4f}{star} ({seconds:.3g} s)"
