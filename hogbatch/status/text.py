"""The report of one run as text, with the numbers of the progress lines of `hogbatch train`."""

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from textwrap import wrap
from typing import Any, Final

from hogbatch.machine.printable import printable
from hogbatch.status.run_files import RunReport
from hogbatch.status.state import Notice, RunState
from hogbatch.status.worker_table import aligned, update_share, worker_speed, worker_table
from hogbatch.status.workers import ObservedWorker
from hogbatch.telemetry.announced import description
from hogbatch.telemetry.console import result_parts, speed_text
from hogbatch.telemetry.records import Evaluation

WIDTH: Final = 80  # columns
MAX_EVENTS: Final = 8
MAX_GONE: Final = 8  # workers that have left
LABEL: Final = 10  # columns of the labels on the left


def report_lines(report: RunReport, width: int = WIDTH) -> list[str]:
    """The report of a run, in lines of at most `width` columns where words permit."""
    run, condition = report.run, report.condition
    state = f"{condition.state}: {condition.reason}" if condition.reason else condition.state
    lines = _labelled("run", [str(report.run_dir)], width)
    lines += _labelled("state", [state], width)
    if run.started is not None:
        lines += _labelled("data", description(asdict(run.started)).split("; "), width, "; ")
        if run.started.rehearsed:
            times = f"rehearsed on {run.started.rehearsed}: all times are simulated"
            lines += _labelled("server", [times], width)
    lines += _labelled("progress", _progress(run, condition.active), width)
    if run.history:
        lines += _labelled("last", [*_when(run.history[-1]), *result_parts(run.history[-1])], width)
    if run.best is not None:
        lines += _labelled("best", [*_when(run.best), *result_parts(run.best)], width)
    if run.checkpoint_at is not None:
        lines += _labelled("saved", [f"checkpoint of {run.checkpoint_at:.2f} s"], width)
    if report.damaged:
        lines += _labelled("damaged", [f"{report.damaged} lines of events.jsonl, ignored"], width)
    lines += _worker_lines(run, condition.active, width) + _event_lines(run, width)
    return lines


def _labelled(label: str, parts: Iterable[str], width: int, separator: str = "  ") -> list[str]:
    """The parts after a label, in as many lines as necessary."""
    lines: list[str] = []
    room = width - LABEL
    for text in map(printable, parts):
        joined = f"{lines[-1]}{separator}{text}" if lines else text
        if lines and len(joined) <= room:
            lines[-1] = joined
            continue
        if lines and separator.strip():
            lines[-1] += separator.rstrip()
        lines += wrap(text, room, break_on_hyphens=False) or [""]
    return [f"{label if n == 0 else '':{LABEL}}{line}" for n, line in enumerate(lines)]


def _when(evaluation: Evaluation) -> list[str]:
    return [f"{evaluation.seconds:.2f} s", f"epoch {evaluation.epochs:.2f}"]


def _progress(run: RunState, active: bool) -> list[str]:
    """How far training is, how fast, and how long it will take."""
    parts = [f"{run.seconds:.2f} s"]
    limit = run.started.epochs if run.started is not None else None
    if run.epochs is not None:
        parts.append(f"epoch {run.epochs:.2f}" + (f" of {limit}" if limit else ""))
    else:
        parts.append(f"{run.rows.value:,} rows")
    if (speed := run.rows_per_second) is not None:
        parts.append(speed_text(speed))
    if not active:
        return parts
    if (left := run.seconds_left()) is not None:
        parts.append(f"at most {duration(left)} left")
    if (patience := run.patience_left()) is not None:
        parts.append(f"ends after {patience:.1f} epochs without a better model")
    if run.started is not None and run.started.target_loss is not None:
        parts.append(f"ends at a loss of {run.started.target_loss:g}")
    return parts


def duration(seconds: float) -> str:
    """A duration with two units at most: "3.2 s", "4 min 10 s", "2 h 5 min"."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _worker_lines(run: RunState, active: bool, width: int) -> list[str]:
    """The table of workers; of those that have left, the last ones."""
    rows, left_out = worker_table(run, active, MAX_GONE)
    if not rows:
        return []
    lines = ["", *aligned([row.cells for row in rows], width)]
    if left_out:
        lines.append(f"and {left_out} more workers that have left")
    return lines


def _event_lines(run: RunState, width: int) -> list[str]:
    """The last events in words."""
    simulated = run.started is not None and run.started.rehearsed is not None
    lines = []
    for notice in list(run.notices)[-MAX_EVENTS:]:
        label = f"{moment(notice, simulated, '%Y-%m-%d %H:%M:%S')}  "
        text = wrap(printable(notice.text), max(20, width - len(label)), break_on_hyphens=False)
        lines += [(label if n == 0 else " " * len(label)) + line for n, line in enumerate(text)]
    return ["", *lines] if lines else []


def moment(notice: Notice, simulated: bool, form: str) -> str:
    """The time of an event: in the `form` of strftime, or in seconds of a simulated clock."""
    if simulated:
        return f"{notice.at:.2f} s"
    return datetime.fromtimestamp(notice.at).strftime(form)


def report_fields(report: RunReport) -> dict[str, Any]:
    """The content of the report as an object for JSON."""
    run = report.run
    started = asdict(run.started) if run.started is not None else None
    return {
        "run_dir": str(report.run_dir),
        "state": report.condition.state,
        "reason": report.condition.reason,
        "started": started,
        "seconds": run.seconds,
        "epochs": run.epochs,
        "rows": run.rows.value,
        "rows_per_second": run.rows_per_second,
        "seconds_left": run.seconds_left() if report.condition.active else None,
        "patience_left": run.patience_left() if report.condition.active else None,
        "last": asdict(run.history[-1]) if run.history else None,
        "best": asdict(run.best) if run.best is not None else None,
        "checkpoint_seconds": run.checkpoint_at,
        "workers": [_worker_fields(worker, run) for worker in run.workers],
        "events": [asdict(notice) for notice in run.notices],
        "damaged_lines": report.damaged,
    }


def _worker_fields(worker: ObservedWorker, run: RunState) -> dict[str, Any]:
    own = [_common_fields(each, run) | {"busy": each.busy} for each in worker.workers]
    return {
        **_common_fields(worker, run),
        "pid": worker.pid,
        "reason": worker.reason,
        "utilization": worker.utilization[-1][1] if worker.utilization else None,
        "staleness": worker.staleness,
        "workers": own,
        "other_workers": worker.others,
    }


def _common_fields(worker: ObservedWorker, run: RunState) -> dict[str, Any]:
    """What is known of every worker, also of one inside a server."""
    return {
        "name": worker.name,
        "device": worker.device,
        "state": worker.state,
        "left_at": worker.left_at,
        "batch_size": worker.batch_size,
        "rows": worker.rows.value,
        "updates": worker.updates.value,
        "update_share": update_share(worker, run),
        "rows_per_second": worker_speed(worker, run),
    }
