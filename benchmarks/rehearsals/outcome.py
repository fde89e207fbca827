"""What the matrix keeps of a rehearsal: when it reached its targets, and what devices did."""

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from benchmarks.common.arrival import arrival
from benchmarks.rehearsals.sets import MatrixSet

Json = dict[str, Any]
DEVICES: Final = ("cpu", "gpu")


def outcome(matrix_set: MatrixSet, summary: Json) -> Json:
    """The result of a cell, from summary.json."""
    history = matrix_set.case.points(summary["history"])
    workers, seconds = summary["workers"], summary["train_seconds"]
    return {
        "rehearsed": summary.get("rehearsed"),
        "status": summary["status"],
        "train_seconds": seconds,
        "rows": summary["rows"],
        "reached": reached(matrix_set, history),
        "history": [
            {key: point[key] for key in ("seconds", "epochs", "rows", "test_loss")}
            for point in history
        ],
        "devices": {device: totals(workers, device, seconds) for device in DEVICES},
        "utilization": {
            device: utilization(workers, summary["history"], device) for device in DEVICES
        },
    }


def reached(matrix_set: MatrixSet, history: Sequence[Json]) -> Json:
    """{"seconds", "rows"} at each target, or None for one that was not reached."""
    found = {name: arrival(history, loss) for name, loss in matrix_set.targets.items()}
    return {name: at and at._asdict() for name, at in found.items()}


def totals(workers: Sequence[Json], device: str, seconds: float) -> Json | None:
    """Totals of the workers on `device` in a run of that many seconds; None if there were none.

    `merging`: the fraction of the time during which merges kept them from training.
    """
    chosen = [worker for worker in workers if worker["device"] == device]
    if not chosen:
        return None
    stale = [w["staleness"] for w in chosen if w.get("staleness") is not None]
    merging = sum(worker.get("merge_seconds") or 0.0 for worker in chosen)
    return {
        "threads": sum(worker["threads"] for worker in chosen),
        "rows": sum(worker["rows"] for worker in chosen),
        "updates": sum(worker["updates"] for worker in chosen),
        "share": sum(worker["update_share"] for worker in chosen),
        "busy": statistics.fmean(worker["busy"] for worker in chosen),
        "staleness": statistics.fmean(stale) if stale else None,
        "merging": merging / (seconds * len(chosen)) if seconds else 0.0,
        "batch": usual_batch(chosen, seconds),
    }


def usual_batch(workers: Sequence[Json], seconds: float) -> int:
    """The batch size that the workers used for the longest time."""
    held: dict[int, float] = {}
    for worker in workers:
        trace = [*worker["batch_trace"], [worker.get("left_at") or seconds, 0]]
        for (since, size), (until, _) in pairwise(trace):
            held[size] = held.get(size, 0.0) + until - since
    return max(held, key=held.__getitem__, default=0)


def utilization(workers: Sequence[Json], history: Sequence[Json], device: str) -> list[list[float]]:
    """[[training second, mean utilization of the workers on `device`], ...] between evaluations.

    The second is in the middle of the interval before an evaluation. Intervals for which no worker
    on `device` has one are left out.
    """
    names = {worker["name"] for worker in workers if worker["device"] == device}
    series, began = [], 0.0
    for point in history:
        own = [value for name, value in point["utilization"].items() if name in names]
        if own:
            middle = (began + point["seconds"]) / 2
            series.append([round(middle, 6), round(statistics.fmean(own), 4)])
        began = point["seconds"]
    return series
