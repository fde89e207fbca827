"""The figures of a report, from what the events of one or several runs say."""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from hogbatch.events.event import Evaluation
from hogbatch.events.state import RunState
from hogbatch.events.worker_figures import ObservedWorker
from hogbatch.views.report.chart import Chart, colour
from hogbatch.views.report.reported import ReportedRun

Runs = Sequence[ReportedRun]
MAX_WORKERS: Final = 12  # of a run, in a figure
MAX_ROWS: Final = 40  # of a figure of several runs
MAX_MOMENTS: Final = 200  # in a row of the time line
MOST_WITH_ALL: Final = 4  # runs of which all losses are drawn; of more, only one kind is
STALENESS_POINTS: Final = 60
NO_WORKER: Final = "No worker has joined yet."
SECONDS: Final = "training seconds"


class LossKind(NamedTuple):
    """A loss that evaluations have; its curves differ from others by their dashes."""

    name: str
    get: Callable[[Evaluation], float | None]


LOSS_KINDS: Final = (
    LossKind("validation", lambda evaluation: evaluation.validation_loss),
    LossKind("training", lambda evaluation: evaluation.train_loss),
)
LOSS_NOTE: Final = (
    "Loss per row at each evaluation. The training loss is the mean since the evaluation before, "
    "measured before each update."
)
EPOCHS: Final = "epochs"
LOSS_TITLES: Final = {SECONDS: "Loss against training time", EPOCHS: "Loss against epochs"}


def run_figures(run: ReportedRun) -> list[Chart]:
    """All figures of one run but the time line."""
    charts = [*comparison_figures([run]), batch_sizes(run.run)]
    if any(each.noise_scale is not None for each in run.run.history):
        charts.append(noise(run.run))
    if any(worker.missed.course.points for worker in run.run.workers):
        charts.append(staleness(run.run))
    return charts


def comparison_figures(runs: Runs) -> list[Chart]:
    """The figures that show one or several runs."""
    return [*(losses(runs, x) for x in LOSS_TITLES), utilization(runs), update_shares(runs)]


def losses(runs: Runs, x: str) -> Chart:
    """The losses over `x`; several runs have one colour each."""
    chart = Chart(LOSS_TITLES[x], x, "loss", LOSS_NOTE, "There is no evaluation yet.")
    kinds = LOSS_KINDS if len(runs) <= MOST_WITH_ALL else [compared_loss(runs)]
    for number, each in enumerate(runs):
        for dash, kind in enumerate(kinds):
            points = [
                (evaluation.epochs if x == EPOCHS else evaluation.seconds, kind.get(evaluation))
                for evaluation in each.run.history
            ]
            name = _name(runs, each, kind.name)
            chart.line(name, points, number if len(runs) > 1 else dash, dash)
    chart.log_if_wide()
    return chart


def compared_loss(runs: Runs) -> LossKind:
    """The first kind of loss that every run with evaluations has."""
    evaluated = [each.run for each in runs if each.run.history]
    for kind in LOSS_KINDS:
        if all(finite_losses(run, kind) for run in evaluated):
            return kind
    return LOSS_KINDS[0]


def finite_losses(run: RunState, kind: LossKind) -> list[tuple[float, Evaluation]]:
    """The evaluations with a finite loss of this kind, and this loss."""
    losses = ((kind.get(evaluation), evaluation) for evaluation in run.history)
    return [(loss, each) for loss, each in losses if loss is not None and math.isfinite(loss)]


def _name(runs: Runs, run: ReportedRun, name: str) -> str:
    return f"{run.name}, {name}" if len(runs) > 1 else name


def utilization(runs: Runs) -> Chart:
    drawn, left_out = main_workers(runs)
    chart = Chart(
        "Utilization of each worker",
        SECONDS,
        "utilization",
        "Rows per second since the evaluation before, over the peak that the worker measured "
        f"before training; a parked worker has 0.{left_out}",
        "No worker has measured its utilization, or there is no evaluation yet.",
    )
    for number, (each, worker) in enumerate(drawn):
        points = worker.utilization
        number, dash = (runs.index(each), number) if len(runs) > 1 else (number, number)
        chart.line(_name(runs, each, worker.name), points, number, dash)
    chart.axes.set_ylim(bottom=0)
    return chart


def update_shares(runs: Runs) -> Chart:
    drawn, left_out = main_workers(runs)
    chart = Chart(
        "Share of updates by worker",
        "fraction of updates",
        note=f"An update is one batch of a team of CPU threads, or one merge of a GPU.{left_out}",
        empty=NO_WORKER,
    )
    for number, (each, worker) in enumerate(drawn):
        share, updates = each.run.share_of(worker) or 0.0, each.run.updates
        name = _name(runs, each, f"{worker.name} ({worker.device})")
        number = runs.index(each) if len(runs) > 1 else number
        chart.bar(name, share, f"{share:.0%} of {updates:,} updates", number)
    chart.axes.set_xlim(0, 1)
    return chart


def batch_sizes(run: RunState) -> Chart:
    workers, left_out = most_rows(run)
    note = f"Rows per update of a team of CPU threads, or per batch of a GPU.{left_out}"
    chart = Chart("Batch sizes", SECONDS, "rows per update", note, "No worker is ready yet.")
    for number, worker in enumerate(workers):
        points = [(seconds, size) for seconds, size in worker.batch_sizes.points if size >= 1]
        if points:
            end = run.seconds if worker.left_at is None else worker.left_at
            points.append((max(end, points[-1][0]), points[-1][1]))
            chart.line(worker.name, points, number, drawstyle="steps-post")
    if chart.axes.lines:
        chart.set_log(2)
    return chart


def noise(run: RunState) -> Chart:
    note = (
        "With batches of this many rows, training needs about twice the rows that it needs with "
        "small ones; the dotted lines are one standard error below and above the estimate."
    )
    chart = Chart("Gradient noise scale", "epochs", "rows", note)
    known = [each for each in run.history if each.noise_scale is not None]
    for dash, (name, errors) in enumerate({"estimate": 0, "- error": -1, "+ error": 1}.items()):
        points = [
            (each.epochs, (each.noise_scale or 0.0) + errors * (each.noise_error or 0.0))
            for each in known
        ]
        chart.line(name, points, 0, dash)
    chart.axes.set_ylim(bottom=0)
    return chart


def staleness(run: RunState) -> Chart:
    note = "Updates by other workers between a GPU's pull and its merge, mean of each interval."
    chart = Chart("Staleness of GPUs", SECONDS, "updates by others", note)
    gpus = [worker for worker in run.workers if worker.missed.course.points]
    for number, worker in enumerate(gpus[:MAX_WORKERS]):
        chart.line(worker.name, staleness_points(worker), number)
    chart.axes.set_ylim(bottom=0)
    return chart


def staleness_points(worker: ObservedWorker) -> list[tuple[float, float]]:
    """(training seconds, mean updates by others from pull to merge) of even intervals."""
    course, updates = worker.missed.course.points, worker.updates.course.points
    stride = max(1, len(course) // STALENESS_POINTS)
    chosen = [course[0], *course[stride - 1 : -1 : stride], course[-1]]
    points, merges = [], 0
    for (_, missed), (seconds, total) in pairwise([(chosen[0][0], 0), *chosen]):
        index = bisect_right(updates, seconds, key=lambda point: point[0])
        done = updates[index - 1][1] if index else 0
        if done > merges:
            points.append((seconds, (total - missed) / (done - merges)))
            merges = done
    return points


def main_workers(runs: Runs) -> tuple[list[tuple[ReportedRun, ObservedWorker]], str]:
    """The workers that a figure of these runs shows; a sentence if others are left out."""
    drawn = [(each, worker) for each in runs for worker in most_rows(each.run)[0]]
    if len(runs) == 1:
        return drawn, most_rows(runs[0].run)[1]
    left_out = f" {len(drawn) - MAX_ROWS:,} workers are left out." if len(drawn) > MAX_ROWS else ""
    return drawn[:MAX_ROWS], left_out


def most_rows(run: RunState) -> tuple[list[ObservedWorker], str]:
    """At most MAX_WORKERS, in the order in which they joined; a sentence about others."""
    others = len(run.workers) - MAX_WORKERS
    if others <= 0:
        return run.workers, ""
    by_rows = sorted(range(len(run.workers)), key=lambda n: -run.workers[n].rows.value)
    what = "1 other worker is" if others == 1 else f"{others:,} other workers are"
    return [run.workers[n] for n in sorted(by_rows[:MAX_WORKERS])], (
        f" The {MAX_WORKERS} workers with most rows are shown; {what} left out."
    )


INCIDENTS: Final = {  # event of `events.state.TIMED`: its row
    "checkpoint": "checkpoints",
    "poisoned": "roll-backs",
    "out_of_memory": "out of memory",
    "resumed": "resumed",
}


def timeline(run: RunState) -> Chart:
    """Workers from when they are ready until they leave, and incidents, over the seconds."""
    workers, left_out = most_rows(run)
    chart = Chart(
        "Time line",
        SECONDS,
        note="A bar is a worker from when it is ready until it leaves; a thin line in its place: "
        f"it is parked; a cross at its end: it is lost.{left_out}",
        empty=NO_WORKER,
    )
    for number, worker in enumerate(workers):
        _draw_presence(chart, worker, run.seconds, colour(number))
    for event, name in INCIDENTS.items():
        if moments := run.occurrences.get(event):
            row = chart.add_row(f"{name} ({len(moments):,})")
            shown = moments[:: -(-len(moments) // MAX_MOMENTS)]
            chart.axes.plot(shown, [row] * len(shown), "|", color="black", markersize=8)
    return chart


def _draw_presence(chart: Chart, worker: ObservedWorker, seconds: float, shade: str) -> None:
    end = seconds if worker.left_at is None else worker.left_at
    start = min(worker.joined_at, end)
    row = chart.add_row(f"{worker.name} ({worker.device})")
    chart.axes.plot([start, end], [row, row], color=shade, linewidth=2)
    points = [(second, parked) for second, parked in worker.parked.points if start < second < end]
    changes = [(start, 0), *points, (end, 0)]
    trained = [(a, b) for (a, parked), (b, _) in pairwise(changes) if not parked]
    x = [second for begin, stop in trained for second in (begin, stop, math.nan)]
    chart.axes.plot(x, [row] * len(x), color=shade, linewidth=9, solid_capstyle="butt")
    if worker.state == "lost":
        chart.axes.plot(end, row, "x", color="black", markersize=8)
