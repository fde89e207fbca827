"""The tables of one run. Numbers are those of the progress lines of `hogbatch train`."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from hogbatch.report.figure import ReportTable
from hogbatch.report.reported import ReportedRun
from hogbatch.status.state import MAX_NOTICES, Notice, RunState
from hogbatch.status.text import duration
from hogbatch.status.worker_table import WorkerTable, rows_of, update_share, worker_speed
from hogbatch.status.workers import ObservedWorker
from hogbatch.telemetry.announced import description
from hogbatch.telemetry.console import result_parts, speed_text
from hogbatch.telemetry.records import Evaluation

MAX_WORKERS: Final = 200  # rows of the table
WORKER_HEADER: Final = (
    *("worker", "device", "state", "rows", "updates", "share", "rows/s", "utilization"),
    *("staleness", "batch", "ready at", "left at"),
)
GIB: Final = 1 << 30


def result_table(each: ReportedRun) -> ReportTable:
    """State and results in words."""
    run, condition = each.run, each.report.condition
    state = f"{condition.state}: {condition.reason}" if condition.reason else condition.state
    rows = [("state", state)]
    if run.started is not None:
        data, _, network = description(asdict(run.started)).partition("; ")
        rows += [("data", data), ("model", network)]
    if each.rehearsed:
        rows.append(("server", f"rehearsed on {each.rehearsed}: all times are simulated"))
    rows.append(("training", ", ".join(_progress(run, active=condition.active))))
    if run.best is not None:
        rows.append(("best model", evaluation_text(run.best)))
    if run.history:
        rows.append(("last evaluation", evaluation_text(run.history[-1])))
    if run.checkpoint_at is not None:
        rows.append(("last checkpoint", f"{seconds_text(run.checkpoint_at)} s"))
    if run.last_at is not None:
        when = clock(run.last_at, simulated=each.rehearsed is not None)
        rows.append(("last event", when if each.rehearsed else f"{when} UTC"))
    if each.report.damaged:
        rows.append(("damaged", f"{each.report.damaged:,} lines of events.jsonl, ignored"))
    return ReportTable("Result", ("", ""), tuple(rows))


def evaluation_text(evaluation: Evaluation) -> str:
    """When an evaluation was, and its results."""
    when = [f"{seconds_text(evaluation.seconds)} s", f"epoch {evaluation.epochs:.2f}"]
    return ", ".join(when + result_parts(evaluation))


def _progress(run: RunState, *, active: bool) -> list[str]:
    limit = run.started.epochs if run.started is not None else None
    parts = [f"{seconds_text(run.seconds)} s", f"{run.rows.value:,} rows"]
    if run.epochs is not None:
        parts.append(f"epoch {run.epochs:.2f}" + (f" of {limit}" if limit else ""))
    if (speed := run.rows_per_second) is not None:
        parts.append(speed_text(speed))
    if active and (left := run.seconds_left()) is not None:
        parts.append(f"at most {duration(left)} left")
    return parts


def worker_table(each: ReportedRun) -> ReportTable:
    """All workers, in the order in which they joined, and those of servers beneath these."""
    run, active = each.run, each.report.condition.active
    cells = partial(_worker_cells, run=run, active=active)
    rows = [row for worker in run.workers for row in rows_of(worker, cells)]
    shown, left_out = WorkerTable(rows, 0).limited(MAX_WORKERS)
    return ReportTable(
        "Workers",
        WORKER_HEADER,
        tuple(row.cells for row in shown),
        frozenset(range(3, len(WORKER_HEADER))),
        words=2 if any(worker.reason for worker in run.workers) else None,
        note=f"{left_out:,} more workers are not shown." if left_out else "",
        beneath=frozenset(n for n, row in enumerate(shown) if row.beneath),
    )


def _worker_cells(worker: ObservedWorker, run: RunState, *, active: bool) -> tuple[str, ...]:
    speed, share = worker_speed(worker, run), update_share(worker, run)
    used = worker.utilization[-1][1] if worker.utilization else None
    state = f"{worker.state}: {worker.reason}" if worker.reason else worker.state
    if worker.state == "trains" and not active:
        state = "-"
    return (
        worker.name,
        worker.device,
        state,
        f"{worker.rows.value:,}",
        f"{worker.updates.value:,}",
        "-" if share is None else f"{share:.0%}",
        "-" if speed is None else f"{speed:,.0f}",
        "-" if used is None else f"{used:.0%}",
        "-" if worker.staleness is None else f"{worker.staleness:.1f}",
        "-" if worker.batch_size is None else f"{worker.batch_size:,}",
        "-" if worker.measured_at is not None else f"{seconds_text(worker.joined_at)} s",
        "-" if worker.left_at is None else f"{seconds_text(worker.left_at)} s",
    )


def event_table(each: ReportedRun) -> ReportTable:
    """The last events in words."""
    simulated = each.rehearsed is not None
    notices = list(each.run.notices)
    when = "simulated time" if simulated else "time (UTC)"
    return ReportTable(
        "Events",
        (when, "seconds", "event"),
        tuple(_event_row(notice, simulated=simulated) for notice in notices),
        frozenset({1}),
        words=2,
        note=f"The last {MAX_NOTICES}." if len(notices) == MAX_NOTICES else "",
    )


def _event_row(notice: Notice, *, simulated: bool) -> tuple[str, ...]:
    return clock(notice.at, simulated=simulated), seconds_text(notice.seconds), notice.text


def seconds_text(seconds: float) -> str:
    """Seconds as in progress lines, with more digits for a fraction of a second."""
    return f"{seconds:.4f}" if 0 < seconds < 0.1 else f"{seconds:.2f}"


def clock(at: float, *, simulated: bool) -> str:
    """The time of an event."""
    if simulated:
        return f"{seconds_text(at)} s"
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a damaged line
        return "-"


def settings_table(each: ReportedRun) -> ReportTable:
    """The settings of config.toml; flags with other values than the defaults are among them."""
    rows = [(key, setting_text(value)) for key, value in each.settings.items()]
    note = each.settings_problem or ("" if rows else "There is no config.toml.")
    return ReportTable("Settings", ("setting", "value"), tuple(rows), note=note)


def setting_text(value: object) -> str:
    """A value of config.toml as it is written after a flag."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    shown = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return shown or "none"


def environment_table(run: RunState) -> ReportTable:
    """Versions and hardware, as the last start of the run has recorded them."""
    facts = run.started.environment if run.started is not None else {}
    rows = [*_hardware(facts), *_versions(facts)]
    note = "" if rows else "The run has not recorded its environment."
    return ReportTable("Environment", ("", ""), tuple(rows), note=note)


def _hardware(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Rows about the hardware; a fact of another type than expected is left out."""
    rows = []
    if isinstance(facts.get("processor"), str):
        rows.append(("processor", facts["processor"]))
    cores, logical = facts.get("cores"), facts.get("logical_cores")
    if isinstance(cores, int) and isinstance(logical, int):
        rows.append(("cores", f"{cores}, {logical} logical"))
    if isinstance(facts.get("memory"), int):
        rows.append(("memory", f"{facts['memory'] / GIB:.1f} GiB"))
    if isinstance(facts.get("gpus"), list):
        rows.append(("GPUs", ", ".join(map(str, facts["gpus"])) or "none"))
    if isinstance(facts.get("driver"), str):
        rows.append(("NVIDIA driver", facts["driver"]))
    return rows


def _versions(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    versions = facts.get("versions")
    if not isinstance(versions, Mapping):
        return []
    return [(str(package), str(found)) for package, found in versions.items()]
