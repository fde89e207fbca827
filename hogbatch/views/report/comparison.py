"""The tables of several runs side by side."""

from collections.abc import Sequence
from typing import Final

from hogbatch.events.records import Evaluation
from hogbatch.events.state import RunState
from hogbatch.views.console import figure
from hogbatch.views.report.figures import LossKind, compared_loss, finite_losses
from hogbatch.views.report.reported import ReportedRun
from hogbatch.views.report.tables import ReportTable, seconds_text, setting_text
from hogbatch.views.status.listing import differing
from hogbatch.views.status.text import shown

HEADER: Final = (
    *("run", "state", "seconds", "epochs", "rows/s"),
    *("best metric", "best loss", "at", "final metric", "final loss", "test loss"),
)


def results_table(runs: Sequence[ReportedRun]) -> ReportTable:
    """The results of all runs, and how long each took to a loss that all have reached."""
    kind, target = compared_loss(runs), common_loss(runs)
    header = HEADER if target is None else (*HEADER, f"seconds to {figure(target)}")
    rows = []
    for each in runs:
        reached = () if target is None else (_seconds(first_below(each.run, kind, target)),)
        rows.append((*_result_row(each, kind), *reached))
    numeric = frozenset(range(2, len(header)))
    return ReportTable("Results", header, tuple(rows), numeric, _results_note(runs, kind, target))


def _result_row(each: ReportedRun, kind: LossKind) -> tuple[str, ...]:
    run, best = each.run, best_evaluation(each.run, kind)
    final = run.history[-1] if run.history else None
    state = each.report.condition.state
    return (
        each.name,
        f"{state} (rehearsed)" if each.rehearsed else state,
        seconds_text(run.seconds),
        shown(run.epochs, ".2f"),
        shown(run.rows_per_second, ",.0f"),
        _metric(run.best),
        figure(kind.get(best)) if best else "-",
        _seconds(best),
        _metric(final),
        figure(kind.get(final)) if final else "-",
        figure(run.tested.loss) if run.tested else "-",
    )


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
    if len({each.rehearsed for each in runs}) > 1:
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


def first_below(run: RunState, kind: LossKind, target: float) -> Evaluation | None:
    """The first evaluation with a loss of at most `target`."""
    return next((each for loss, each in finite_losses(run, kind) if loss <= target), None)


def _seconds(evaluation: Evaluation | None) -> str:
    return "-" if evaluation is None else seconds_text(evaluation.seconds)


def _metric(evaluation: Evaluation | None) -> str:
    found = next(iter(evaluation.validation_values.items()), None) if evaluation else None
    return f"{found[0]} {figure(found[1])}" if found else "-"
