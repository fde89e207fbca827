"""What the matrix keeps of a rehearsal: when it reached its targets, and what devices did."""

import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from benchmarks.common.arrival import arrival
from benchmarks.rehearsals.sets import MatrixSet

Json = dict[str, Any]
DEVICES: Final = ("cpu", "gpu")
INTERVALS: Final = 40  # of a series over time


def outcome(matrix_set: MatrixSet, summary: Json, events: Sequence[Json]) -> Json:
    """The result of a cell, from summary.json and events.jsonl."""
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
        "utilisation": {
            device: utilisation(workers, events, device, seconds) for device in DEVICES
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


def utilisation(
    workers: Sequence[Json], events: Sequence[Json], device: str, seconds: float
) -> list[list[float]]:
    """[[training second, fraction of the time spent computing], ...] over equal intervals.

    A lease that ended at `seconds` was computed in the `busy_seconds` before that. Empty if no
    worker on `device` finished a lease.
    """
    names = {worker["name"] for worker in workers if worker["device"] == device}
    leases = [e for e in events if e["event"] == "lease" and e["worker"] in names]
    if not leases or not seconds:
        return []
    width = seconds / INTERVALS
    busy = [0.0] * INTERVALS
    for lease in leases:
        stop = min(lease["seconds"], seconds)
        _spread(busy, width, max(0.0, stop - lease["busy_seconds"]), stop)
    return [
        [round((number + 0.5) * width, 6), round(min(1.0, part / width / len(names)), 4)]
        for number, part in enumerate(busy)
    ]


def _spread(sums: list[float], width: float, start: float, stop: float) -> None:
    """Add [start, stop) to the intervals that it overlaps."""
    first = min(int(start / width), len(sums) - 1)
    for number in range(first, len(sums)):
        overlap = min(stop, (number + 1) * width) - max(start, number * width)
        if overlap <= 0 and number > first:
            return
        sums[number] += max(0.0, overlap)
