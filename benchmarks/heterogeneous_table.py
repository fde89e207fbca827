"""What the runs of `heterogeneous` say: each device's part, and both against the better alone."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from time_to_loss import cell, medians

ALONE = ("cpu", "gpu")

COLUMNS = (  # what of which device, between epochs and "both since"
    *(("updates", "cpu"), ("updates", "gpu"), ("share", "cpu")),
    *(("busy", "cpu"), ("busy", "gpu"), ("staleness", "gpu")),
)

Run = dict[str, Any]


def part(workers: Sequence[dict[str, Any]], device: str) -> dict[str, Any] | None:
    """What the workers on `device` did together; None without any.

    `since`: the training seconds at which the first of them was ready, None if none ever was.
    """
    mine = [worker for worker in workers if worker["device"] == device]
    if not mine:
        return None
    stale = [w["staleness"] for w in mine if w.get("staleness") is not None]
    return {
        "updates": sum(worker["updates"] for worker in mine),
        "share": sum(worker["update_share"] for worker in mine),
        "busy": statistics.fmean(worker["busy"] for worker in mine),
        "staleness": statistics.fmean(stale) if stale else None,
        "since": min((w["batch_trace"][0][0] for w in mine if w["batch_trace"]), default=None),
    }


def better_alone(seconds: dict[str, float]) -> str | None:
    """The one device that arrived sooner without the other; None if neither was there in time."""
    arrived = [kind for kind in ALONE if seconds.get(kind, math.inf) < math.inf]
    return min(arrived, key=seconds.__getitem__, default=None)


def ratio(seconds: dict[str, float], kind: str, limit_s: float) -> str:
    """Seconds of `kind` over those of the better device alone; a bound where one did not arrive."""
    ours, best = seconds[kind], better_alone(seconds)
    if best is None:
        tried = any(device in seconds for device in ALONE)
        return f"< {ours / limit_s:.2f}" if tried and ours < math.inf else "-"
    if kind == best:
        return "better alone"
    found = min(ours, limit_s) / seconds[best]
    return f"> {found:.2f}" if math.isinf(ours) else f"{found:.2f}"


def table(runs: Sequence[Run], targets: dict[str, float], limit_s: float) -> str:
    """A row for each set and kind, in medians over the seeds; updates are those of whole runs."""
    head = ["set, test loss", "kind", "seconds", "over the better alone", "epochs", "updates CPU"]
    head += ["updates GPU", "CPU's share", "busy CPU", "busy GPU", "staleness GPU", "both since"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for which, seconds in medians(runs).items():
        for kind in seconds:
            mine = [run for run in runs if (run["set"], run["name"]) == (which, kind)]
            row = [f"{which}, {targets[which]:g}", kind, cell(seconds[kind], limit_s)]
            since = [both_since(run["devices"]) for run in mine]
            early = " (before both trained)" if _middle(since, -1.0) >= seconds[kind] else ""
            row.append(ratio(seconds, kind, limit_s) + early)
            row.append(shown(run["epochs"] for run in mine if seconds[kind] < math.inf))
            parts = {device: [run["devices"][device] or {} for run in mine] for device in ALONE}
            row += [shown(each.get(what) for each in parts[device]) for what, device in COLUMNS]
            row.append(shown(since))
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def both_since(devices: dict[str, dict[str, Any] | None]) -> float | None:
    """The training seconds without one of the devices, infinite if it never came; None of one."""
    since = [device["since"] for device in devices.values() if device]
    if len(since) < len(ALONE):
        return None
    return max(math.inf if each is None else each for each in since)


def shown(values: Iterable[float | None]) -> str:
    """The median of those that are there; infinity is never."""
    middle = _middle(values, math.nan)
    if math.isnan(middle):
        return "-"
    if math.isinf(middle):
        return "never"
    return f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"


def _middle(values: Iterable[float | None], without: float) -> float:
    """The median of those that are there, `without` if there are none."""
    there = [value for value in values if value is not None]
    return statistics.median(there) if there else without
