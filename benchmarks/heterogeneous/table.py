"""The table of `heterogeneous`: totals per device, ratios to the better device alone."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.common.report import Run, markdown, medians, seconds_cell

ALONE = ("cpu", "gpu")

COLUMNS = (  # (value, device) between "epochs" and "both since"
    *(("updates", "cpu"), ("updates", "gpu"), ("share", "cpu")),
    *(("busy", "cpu"), ("busy", "gpu"), ("staleness", "gpu")),
)


def better_alone(seconds: dict[str, float]) -> str | None:
    """The device that reached the target first without the other; None if neither reached it."""
    arrived = [kind for kind in ALONE if seconds.get(kind, math.inf) < math.inf]
    return min(arrived, key=seconds.__getitem__, default=None)


def ratio(seconds: dict[str, float], kind: str, limit_s: float) -> str:
    """Seconds of `kind` over those of the better device alone.

    A bound if one of the two did not reach the target.
    """
    ours, best = seconds[kind], better_alone(seconds)
    if best is None:
        tried = any(device in seconds for device in ALONE)
        return f"< {ours / limit_s:.2f}" if tried and ours < math.inf else "-"
    if kind == best:
        return "better alone"
    found = min(ours, limit_s) / seconds[best]
    return f"> {found:.2f}" if math.isinf(ours) else f"{found:.2f}"


def table(runs: Sequence[Run], targets: dict[str, float], limit_s: float) -> str:
    """One row per data set and kind: medians over the seeds; updates are those of whole runs."""
    head = ["set, test loss", "kind", "seconds", "over the better alone", "epochs", "updates CPU"]
    head += ["updates GPU", "CPU's fraction", "busy CPU", "busy GPU", "staleness GPU", "both since"]
    rows = []
    for which, seconds in medians(runs).items():
        for kind in seconds:
            chosen = [run for run in runs if (run["set"], run["name"]) == (which, kind)]
            row = [f"{which}, {targets[which]:g}", kind, seconds_cell(seconds[kind], limit_s)]
            since = [both_since(run["devices"]) for run in chosen]
            early = " (before both trained)" if _median(since, -1.0) >= seconds[kind] else ""
            row.append(ratio(seconds, kind, limit_s) + early)
            row.append(median_cell(run["epochs"] for run in chosen if seconds[kind] < math.inf))
            totals = {device: [run["devices"][device] or {} for run in chosen] for device in ALONE}
            row += [median_cell(each.get(what) for each in totals[dev]) for what, dev in COLUMNS]
            row.append(median_cell(since))
            rows.append(row)
    return markdown(head, rows)


def both_since(devices: dict[str, dict[str, Any] | None]) -> float | None:
    """The training second from which both devices trained.

    Infinite if one never did; None for a run with one device.
    """
    since = [device["since"] for device in devices.values() if device]
    if len(since) < len(ALONE):
        return None
    return max(math.inf if each is None else each for each in since)


def median_cell(values: Iterable[float | None]) -> str:
    """The median of the values that are not None; infinity is shown as "never"."""
    middle = _median(values, math.nan)
    if math.isnan(middle):
        return "-"
    if math.isinf(middle):
        return "never"
    return f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"


def _median(values: Iterable[float | None], default: float) -> float:
    """The median of the values that are not None; `default` if there are none."""
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else default
