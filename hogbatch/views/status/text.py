"""The report of one run as text, with the numbers of the progress lines of `hogbatch train`."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from textwrap import wrap
from typing import Any, Final, NamedTuple

from hogbatch.events.state import Notice, RunState
from hogbatch.events.worker_figures import ObservedWorker
from hogbatch.machine.printable import printable
from hogbatch.views.console import loss_of, measured_parts, result_parts, speed_text
from hogbatch.views.status.run_files import RunReport

WIDTH: Final = 80  # columns
MAX_EVENTS: Final = 8
MAX_GONE: Final = 8  # workers that have left
LABEL: Final = 10  # columns of the labels on the left
HEADER: Final = ("worker", "device", "batch", "updates", "share", "rows/s", "util.", "stale", "")
# columns of tables that are aligned on the right
RIGHT: Final = (*HEADER[2:8], "test loss", "seconds")

Cells = tuple[str, ...]  # one for each column


def report_lines(report: RunReport, width: int = WIDTH) -> list[str]:
    """The report of a run, in lines of at most `width` columns where words permit."""
    lines = []
    for label, texts in report_parts(report).items():
        for n, line in enumerate(filled(map(printable, texts), width - LABEL)):
            lines.append(f"{'' if n else label:{LABEL}}{line}")
    workers, left_out = worker_table(report.run, report.condition.active, MAX_GONE)
    if workers:
        lines += ["", *aligned([HEADER, *(row.cells for row in workers)], width)]
        lines += [f"and {left_out} more workers that have left"] if left_out else []
    return lines + _event_lines(report.run, width)


def report_parts(report: RunReport) -> dict[str, list[str]]:
    """State, data, progress and results in words, by label."""
    run, condition, started = report.run, report.condition, report.run.started
    state = f"{condition.state}: {condition.reason}" if condition.reason else condition.state
    parts = {"run": [str(report.run_dir)], "state": [state]}
    if started is not None:
        data, _, network = started.description.partition("; network ")
        parts |= {"data": [data], "network": [network]}
    if run.rehearsed:
        parts["server"] = [f"rehearsed on {run.rehearsed}: all times are simulated"]
    parts["progress"] = _progress(run, condition.active)
    for label, each in (("last", run.history[-1] if run.history else None), ("best", run.best)):
        if each is not None:
            when = [f"{each.seconds:.2f} s", f"epoch {each.epochs:.2f}"]
            parts[label] = [*when, *result_parts(each, loss_of(started))]
    if (tested := run.tested) is not None:
        parts["test"] = measured_parts(tested.values, tested.loss, loss_of(started), "loss")
    for baseline in list(run.baselines.values())[-1:]:
        parts["baseline"] = [
            f"always predicting {baseline.prediction}:",
            *measured_parts(baseline.values, baseline.loss, loss_of(started), "loss"),
        ]
    if run.checkpoint_at is not None:
        parts["saved"] = [f"checkpoint of {run.checkpoint_at:.2f} s"]
    if report.elsewhere is not None:
        reason = "because they could not be saved in the run directory"
        parts["results"] = [f"in {report.elsewhere}, {reason}"]
    if run.damaged:
        parts["damaged"] = [f"{run.damaged} lines of events.jsonl, ignored"]
    return parts


def filled(parts: Iterable[str], room: int) -> list[str]:
    """The parts in lines of at most `room` columns; only a part that is longer is broken."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 2 + len(part) <= room:
            lines[-1] += f"  {part}"
        else:
            lines += wrap(part, room, break_on_hyphens=False)
    return lines


def _progress(run: RunState, active: bool) -> list[str]:
    """The progress of training, its speed, and how long it will take."""
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


def _event_lines(run: RunState, width: int) -> list[str]:
    simulated = run.rehearsed is not None
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


class WorkerRow(NamedTuple):
    """A row of a table of workers."""

    cells: Cells
    beneath: bool = False  # it belongs to the server above it
    workers: int = 1  # that the row stands for


class WorkerTable(NamedTuple):
    """The rows of a table, and how many workers are not in it."""

    rows: list[WorkerRow]  # without the header
    left_out: int

    def limited(self, lines: int) -> "WorkerTable":
        """The rows that are shown in `lines` lines, of which workers of servers are omitted first.

        The last line says how many workers are left out, unless all others just fit.
        """
        rows = self.rows
        if len(rows) + bool(self.left_out) <= lines:
            return self
        others_fit = not self.left_out and sum(not row.beneath for row in rows) == lines
        too_many = len(rows) - (lines if others_fit else max(1, lines - 1))
        last_first = sorted(range(len(rows)), key=lambda n: (rows[n].beneath, n), reverse=True)
        out = set(last_first[:too_many])
        left_out = self.left_out + sum(rows[n].workers for n in out)
        return WorkerTable([row for n, row in enumerate(rows) if n not in out], left_out)


def worker_table(run: RunState, active: bool, most_gone: int) -> WorkerTable:
    """All workers that are present, and of those that have left the last `most_gone`.

    The workers of a server that is present are beneath it. `active`: the run may still train, so
    that states are shown.
    """
    gone = [n for n, worker in enumerate(run.workers) if worker.left_at is not None]
    left_out = gone[: max(0, len(gone) - most_gone)]
    rows: list[WorkerRow] = []
    for worker in (worker for n, worker in enumerate(run.workers) if n not in left_out):
        rows.append(WorkerRow(_cells(worker, run, active)))
        if worker.left_at is None:
            rows += _rows_of_server(worker, run, active)
    return WorkerTable(rows, len(left_out))


def _rows_of_server(server: ObservedWorker, run: RunState, active: bool) -> list[WorkerRow]:
    """The rows of the workers of a server; none if it is another worker."""
    cells = [_cells(worker, run, active) for worker in server.workers]
    rows = [WorkerRow((f"  {name}", *others), beneath=True) for name, *others in cells]
    if server.others:
        empty = [""] * (len(HEADER) - 1)
        rows.append(WorkerRow((f"  {server.others} more", *empty), True, server.others))
    return rows


def aligned(rows: Sequence[Cells], width: int) -> list[str]:
    """A table as lines, with the gaps that `width` permits; the first row is its header."""
    widths = column_widths(rows)
    gap = "  " if sum(widths) + 2 * len(widths) <= width else " "
    right = [name in RIGHT for name in rows[0]]
    return [
        gap.join(
            cell.rjust(size) if number else cell.ljust(size)
            for cell, size, number in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def column_widths(rows: Sequence[Cells]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _cells(worker: ObservedWorker, run: RunState, active: bool) -> Cells:
    state = worker.state if active else ""
    if worker.left_at is not None:
        state = f"{worker.state} {worker.left_at:.1f} s"
    elif state == "trains" and not run.trains:
        state = "ready"
    return (
        printable(worker.name),
        printable(worker.device),
        shown(worker.batch_size, "d"),
        f"{worker.updates.value:,}",
        shown(run.share_of(worker), ".0%"),
        shown(run.speed_of(worker), ",.0f"),
        shown(worker.last_utilization, ".0%"),
        shown(worker.staleness, ".1f"),
        state,
    )


def shown(value: float | None, form: str) -> str:
    """A number in a table; "-" if it is not known."""
    return "-" if value is None else format(value, form)


def report_fields(report: RunReport) -> dict[str, Any]:
    """The content of the report as an object for JSON."""
    run, active, started = report.run, report.condition.active, report.run.started
    return {
        "run_dir": str(report.run_dir),
        "state": report.condition.state,
        "reason": report.condition.reason,
        "started": started and {"at": started.at, "rehearsed": None, **started.fields},
        "seconds": run.seconds,
        "epochs": run.epochs,
        "rows": run.rows.value,
        "rows_per_second": run.rows_per_second,
        "seconds_left": run.seconds_left() if active else None,
        "patience_left": run.patience_left() if active else None,
        "last": run.history[-1].fields if run.history else None,
        "best": run.best and run.best.fields,
        "test": run.tested and run.tested.fields,
        "checkpoint_seconds": run.checkpoint_at,
        "elsewhere": report.elsewhere and str(report.elsewhere),
        "workers": [_worker_fields(worker, run) for worker in run.workers],
        "events": [asdict(notice) for notice in run.notices],
        "damaged_lines": run.damaged,
    }


def _worker_fields(worker: ObservedWorker, run: RunState) -> dict[str, Any]:
    names = ("name", "device", "pid", "state", "reason", "left_at", "batch_size", "staleness")
    return {name: getattr(worker, name) for name in names} | {
        "rows": worker.rows.value,
        "updates": worker.updates.value,
        "update_share": run.share_of(worker),
        "rows_per_second": run.speed_of(worker),
        "utilization": worker.last_utilization,
        "busy": worker.busy,
        "workers": [_worker_fields(each, run) for each in worker.workers],
        "other_workers": worker.others,
    }
