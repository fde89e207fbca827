"""Results of a rehearsal in the matrix: times of targets, and the work of each device."""

import statistics
from collections.abc import Sequence
from typing import Any, Final

from benchmarks.common.arrival import arrival
from benchmarks.common.hogbatch_run import as_tested, device_totals
from benchmarks.rehearsals.sets import MatrixSet

Json = dict[str, Any]
DEVICES: Final = ("cpu", "gpu")


def outcome(matrix_set: MatrixSet, summary: Json) -> Json:
    """The result of a cell, from summary.json."""
    history = matrix_set.case.points(as_tested(summary["history"]))
    workers = summary["workers"]
    return {
        "rehearsed": summary.get("rehearsed"),
        "status": summary["status"],
        "train_seconds": summary["train_seconds"],
        "rows": summary["rows"],
        "reached": reached(matrix_set, history),
        "history": [
            {key: point[key] for key in ("seconds", "epochs", "rows", "test_loss")}
            for point in history
        ],
        "devices": {device: device_totals(workers, device) for device in DEVICES},
        "utilization": {
            device: utilization(workers, summary["history"], device) for device in DEVICES
        },
    }


def reached(matrix_set: MatrixSet, history: Sequence[Json]) -> Json:
    """{"seconds", "rows"} at each target, or None for one that was not reached."""
    found = {name: arrival(history, loss) for name, loss in matrix_set.targets.items()}
    return {name: at and at._asdict() for name, at in found.items()}


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
