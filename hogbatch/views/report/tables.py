"""The tables of one or several runs, with numbers as in the progress lines of `hogbatch train`."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from hogbatch.events.event import Evaluation
from hogbatch.events.state import MAX_NOTICES, RunState
from hogbatch.machine.budget import byte_size
from hogbatch.views.console import figure
from hogbatch.views.report.figures import LossKind, compared_loss, finite_losses
from hogbatch.views.report.reported import ReportedRun, ReportTable
from hogbatch.views.status import text as status
from hogbatch.views.status.listing import differing
from hogbatch.views.status.text import shown

MAX_WORKERS: Final = 200  # rows of the table
MAX_IMPORTANCES: Final = 50


def result_table(each: ReportedRun) -> ReportTable:
    """State and results, as `hogbatch status` shows them."""
    run, parts = each.run, status.report_parts(each.report)
    rows = [(label, ", ".join(texts)) for label, texts in parts.items() if label != "run"]
    if run.last_at is not None:
        when = clock(run.last_at, simulated=each.run.rehearsed is not None)
        rows.append(("last event", when if each.run.rehearsed else f"{when} UTC"))
    return ReportTable("Result", ("", ""), tuple(rows))


def worker_table(each: ReportedRun) -> ReportTable:
    """All workers, as in `hogbatch status`."""
    run = each.run
    all_workers = status.worker_table(run, each.report.condition.active, len(run.workers))
    rows, left_out = all_workers.limited(MAX_WORKERS)
    return ReportTable(
        "Workers",
        (*status.HEADER[:-1], "state"),
        tuple((row.cells[0].strip(), *row.cells[1:]) for row in rows),
        frozenset(n for n, name in enumerate(status.HEADER) if name in status.RIGHT),
        note=f"{left_out:,} more workers are not shown." if left_out else "",
        beneath=frozenset(n for n, row in enumerate(rows) if row.beneath),
    )


def event_table(each: ReportedRun) -> ReportTable:
    simulated = each.run.rehearsed is not None
    notices = list(each.run.notices)
    when = "simulated time" if simulated else "time (UTC)"
    return ReportTable(
        "Events",
        (when, "seconds", "event"),
        tuple(
            (clock(notice.at, simulated=simulated), seconds_text(notice.seconds), notice.text)
            for notice in notices
        ),
        frozenset({1}),
        note=f"The last {MAX_NOTICES}." if len(notices) == MAX_NOTICES else "",
    )


def seconds_text(seconds: float) -> str:
    """Seconds as in progress lines, with more digits for a fraction of a second."""
    return f"{seconds:.4f}" if 0 < seconds < 0.1 else f"{seconds:.2f}"


def clock(at: float, *, simulated: bool) -> str:
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
    facts = dict(run.started.environment if run.started is not None else {})
    versions = facts.pop("versions", {})
    if isinstance(facts.get("memory"), int):
        facts["memory"] = byte_size(facts["memory"])
    rows = [(name.replace("_", " "), setting_text(value)) for name, value in facts.items()]
    if isinstance(versions, Mapping):
        rows += [(str(package), str(found)) for package, found in versions.items()]
    note = "" if rows else "The run has not recorded its environment."
    return ReportTable("Environment", ("", ""), tuple(rows), note=note)


def importance_table(each: ReportedRun) -> ReportTable:
    """The columns that the saved model needs most."""
    most = each.predictions.importances[:MAX_IMPORTANCES]
    return ReportTable(
        "Importance of columns",
        ("column", "increase of the loss", "standard deviation"),
        tuple((name, f"{mean:.4g}", f"{deviation:.2g}") for name, mean, deviation in most),
        frozenset({1, 2}),
        note="How much higher the loss of the saved model is when the values of one column are "
        "shuffled. Of columns that contain the same, each seems less important than both are.",
    )


def column_table(run: RunState) -> ReportTable:
    columns = run.started.columns if run.started is not None else []
    rows = tuple(
        (
            str(each["name"]),
            each["kind"] or "not used",
            shown(each["missing"], ",d"),
            each["unused"],
        )
        for each in columns
    )
    note = "Columns that are not read have no number of missing cells."
    header = ("column", "kind", "missing cells", "why it is not used")
    return ReportTable("Columns of the training data", header, rows, frozenset({2}), note)


def results_table(runs: Sequence[ReportedRun]) -> ReportTable:
    """The results of all runs, and how long each took to a loss that all have reached."""
    kind, target = compared_loss(runs), common_loss(runs)
    rows = [_result_row(each, kind) for each in runs]
    if target is not None:
        for each, row in zip(runs, rows, strict=True):
            below = (found for loss, found in finite_losses(each.run, kind) if loss <= target)
            row[f"seconds to {figure(target)}"] = _seconds(next(below, None))
    header, cells = tuple(rows[0]), tuple(tuple(row.values()) for row in rows)
    numeric = frozenset(range(2, len(header)))
    return ReportTable("Results", header, cells, numeric, _results_note(runs, kind, target))


def _result_row(each: ReportedRun, kind: LossKind) -> dict[str, str]:
    """The cells of a run by the headings of their columns."""
    run, best = each.run, best_evaluation(each.run, kind)
    final = run.history[-1] if run.history else None
    state = each.report.condition.state
    return {
        "run": each.name,
        "state": f"{state} (rehearsed)" if each.run.rehearsed else state,
        "seconds": seconds_text(run.seconds),
        "epochs": shown(run.epochs, ".2f"),
        "rows/s": shown(run.rows_per_second, ",.0f"),
        "best metric": _metric(run.best),
        "best loss": figure(kind.get(best)) if best else "-",
        "at": _seconds(best),
        "final metric": _metric(final),
        "final loss": figure(kind.get(final)) if final else "-",
        "test loss": figure(run.tested.loss) if run.tested else "-",
    }


def best_evaluation(run: RunState, kind: LossKind) -> Evaluation | None:
    """The evaluation of the model that is kept, or with the lowest training loss."""
    if run.best is not None:
        return run.best
    losses = finite_losses(run, kind)
    return min(losses, key=lambda pair: pair[0])[1] if losses else None


def _results_note(runs: Sequence[ReportedRun], kind: LossKind, target: float | None) -> str:
    notes = [f"Losses are those of the {kind.name} rows."]
    if target is not None:
        notes.append(f"{figure(target)} is the lowest loss that all runs have reached.")
    started = [each.run.started for each in runs]
    described = {
        (s.data, s.train_rows, s.validation_rows, s.test_rows, s.loss)
        for s in started
        if s is not None
    }
    if len(described) > 1:
        notes.append("The runs have different data or losses, so compare them with care.")
    if len({each.run.rehearsed for each in runs}) > 1:
        notes.append("Times of rehearsed runs are simulated, on the server that they name.")
    return " ".join(notes)


def differing_table(runs: Sequence[ReportedRun]) -> ReportTable:
    """The settings in which the runs differ."""
    keys = differing([each.settings for each in runs])
    rows = [(key, *(setting_text(each.settings.get(key)) for each in runs)) for key in keys]
    header = ("setting", *(each.name for each in runs))
    note = "" if rows else "The runs have the same settings."
    return ReportTable("Settings that differ", header, tuple(rows), note=note)


def common_loss(runs: Sequence[ReportedRun]) -> float | None:
    """The lowest loss that every run has reached; None if a run has none."""
    kind = compared_loss(runs)
    losses = [[loss for loss, _ in finite_losses(each.run, kind)] for each in runs]
    return max(map(min, losses)) if all(losses) else None


def _seconds(evaluation: Evaluation | None) -> str:
    return "-" if evaluation is None else seconds_text(evaluation.seconds)


def _metric(evaluation: Evaluation | None) -> str:
    found = next(iter(evaluation.validation_values.items()), None) if evaluation else None
    return f"{found[0]} {figure(found[1])}" if found else "-"
