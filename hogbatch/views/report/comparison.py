"""The figures and tables of several runs side by side: one colour and one marker for each run."""

import math
from collections.abc import Sequence
from typing import Final

from hogbatch.events.records import Evaluation
from hogbatch.events.state import RunState
from hogbatch.views.console import loss_text
from hogbatch.views.report.figure import (
    MAX_CURVES,
    BarChart,
    Curve,
    Figure,
    Plot,
    ReportTable,
    Style,
    curve,
)
from hogbatch.views.report.reported import ReportedRun
from hogbatch.views.report.run_figures import (
    LOSS_KINDS,
    LOSS_TITLES,
    LossKind,
    loss_curves,
    loss_plot,
    main_workers,
    share_bars,
    share_chart,
    utilization_plot,
)
from hogbatch.views.report.tables import seconds_text, setting_text
from hogbatch.views.status.listing import differing

MOST_WITH_BOTH: Final = 4  # runs whose losses are all drawn; of more, only one kind is
MAX_BARS: Final = 40
HEADER: Final = (
    *("run", "state", "seconds", "epochs", "rows/s"),
    *("best loss", "at", "final loss", "best metric", "final metric"),
)


def comparison_figures(runs: Sequence[ReportedRun], most: int) -> list[Figure]:
    """Losses, utilization and shares of updates of all runs."""
    return [
        *(_loss_plot(runs, x, most) for x in LOSS_TITLES),
        _utilization(runs, most),
        _update_shares(runs),
    ]


def _loss_plot(runs: Sequence[ReportedRun], x: str, most: int) -> Plot:
    kinds = {kind.name for kind in LOSS_KINDS}
    if len(runs) > MOST_WITH_BOTH:
        kinds = {_compared(runs).name}
    curves: list[Curve] = []
    for number, each in enumerate(runs):

        def shown(
            kind: LossKind, dash: int, name: str = each.name, number: int = number
        ) -> tuple[str, Style]:
            return f"{name}, {kind.name}", Style(number, dash, number)

        drawn = zip(LOSS_KINDS, loss_curves(each.run, x, shown, most), strict=True)
        curves += [found for kind, found in drawn if kind.name in kinds]
    return loss_plot(x, curves)


def _utilization(runs: Sequence[ReportedRun], most: int) -> Plot:
    curves = []
    for number, each in enumerate(runs):
        for index, worker in enumerate(main_workers(each.run)[0]):
            style = Style(number, index, number)
            name = f"{each.name}, {worker.name}"
            curves.append(curve(name, worker.utilization, style, most=most))
    drawn = [found for found in curves if found.points]
    shown = drawn[: 2 * MAX_CURVES]
    left_out = len(drawn) - len(shown)
    return utilization_plot(shown, f" {left_out:,} more curves are left out." if left_out else "")


def _update_shares(runs: Sequence[ReportedRun]) -> BarChart:
    bars = [
        bar
        for number, each in enumerate(runs)
        for bar in share_bars(each.run, main_workers(each.run)[0], number, each.name)
    ]
    more = f" {len(bars) - MAX_BARS:,} more bars are left out." if len(bars) > MAX_BARS else ""
    return share_chart(bars[:MAX_BARS], more)


def results_table(runs: Sequence[ReportedRun]) -> ReportTable:
    """The results of all runs, and how long each took to a loss that all have reached."""
    kind, target = _compared(runs), common_loss(runs)
    header = HEADER if target is None else (*HEADER, f"seconds to {target:.4f}")
    rows = []
    for each in runs:
        reached = () if target is None else (_seconds(seconds_to(each.run, kind, target)),)
        rows.append((*_result_row(each, kind), *reached))
    return ReportTable(
        "Results",
        header,
        tuple(rows),
        frozenset(range(2, len(header))),
        note=_results_note(runs, kind, target),
        styles=tuple(Style(number, 0, number) for number in range(len(runs))),  # of their curves
    )


def _result_row(each: ReportedRun, kind: LossKind) -> tuple[str, ...]:
    run, best = each.run, best_evaluation(each.run, kind)
    final = run.history[-1] if run.history else None
    speed, state = run.rows_per_second, each.report.condition.state
    return (
        each.name,
        f"{state} (rehearsed)" if each.rehearsed else state,
        seconds_text(run.seconds),
        "-" if run.epochs is None else f"{run.epochs:.2f}",
        "-" if speed is None else f"{speed:,.0f}",
        loss_text(kind.get(best)) if best else "-",
        _seconds(best.seconds if best else None),
        loss_text(kind.get(final)) if final else "-",
        _metric(run.best),
        _metric(final),
    )


def best_evaluation(run: RunState, kind: LossKind) -> Evaluation | None:
    """The evaluation of the model that is kept, or with the lowest loss without a test set."""
    if run.best is not None:
        return run.best
    finite = [each for each in run.history if _is_finite(kind.get(each))]
    return min(finite, key=lambda each: kind.get(each) or 0.0, default=None)


def _results_note(runs: Sequence[ReportedRun], kind: LossKind, target: float | None) -> str:
    notes = [f"Losses are those of the {'test set' if kind.name == 'test' else 'training rows'}."]
    if target is not None:
        notes.append(f"{target:.4f} is the lowest loss that all runs have reached.")
    started = [each.run.started for each in runs]
    described = {(s.data, s.train_rows, s.test_rows, s.loss) for s in started if s is not None}
    if len(described) > 1:
        notes.append("The runs have different data or losses, so compare them with care.")
    if len({each.rehearsed for each in runs}) > 1:
        notes.append("Times of rehearsed runs are simulated, on the server that they name.")
    return " ".join(notes)


def differing_table(runs: Sequence[ReportedRun]) -> ReportTable:
    """The settings in which the runs differ."""
    keys = differing([each.settings for each in runs])
    rows = [(key, *(setting_text(each.settings.get(key)) for each in runs)) for key in keys]
    return ReportTable(
        "Settings that differ",
        ("setting", *(each.name for each in runs)),
        tuple(rows),
        note="" if rows else "The runs have the same settings.",
    )


def _compared(runs: Sequence[ReportedRun]) -> LossKind:
    """The first kind of loss that every run with evaluations has."""
    evaluated = [each.run.history for each in runs if each.run.history]
    for kind in LOSS_KINDS:
        if all(any(_is_finite(kind.get(e)) for e in history) for history in evaluated):
            return kind
    return LOSS_KINDS[0]


def common_loss(runs: Sequence[ReportedRun]) -> float | None:
    """The lowest loss that every run has reached; None if a run has none."""
    kind = _compared(runs)
    lowest = []
    for each in runs:
        losses = [loss for e in each.run.history if _is_finite(loss := kind.get(e))]
        if not losses:
            return None
        lowest.append(min(loss for loss in losses if loss is not None))
    return max(lowest)


def seconds_to(run: RunState, kind: LossKind, target: float) -> float | None:
    """The training seconds of the first evaluation with a loss of at most `target`."""
    for each in run.history:
        loss = kind.get(each)
        if loss is not None and loss <= target:
            return each.seconds
    return None


def _is_finite(loss: float | None) -> bool:
    return loss is not None and math.isfinite(loss)


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else seconds_text(seconds)


def _metric(evaluation: Evaluation | None) -> str:
    found = next(iter(evaluation.test_values.items()), None) if evaluation else None
    return f"{found[0]} {found[1]:.4f}" if found else "-"
