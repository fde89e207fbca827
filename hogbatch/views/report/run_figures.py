"""The figures of one run, from what its events say."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from hogbatch.events.event import CheckpointWritten, Event, OutOfMemory, Poisoned, Resumed
from hogbatch.events.records import Evaluation
from hogbatch.events.state import RunState
from hogbatch.events.worker_figures import ObservedWorker
from hogbatch.views.report.figure import (
    MAX_CURVES,
    MAX_POINTS,
    SECONDS,
    Bar,
    BarChart,
    Curve,
    Figure,
    Lane,
    Look,
    Plot,
    Point,
    Style,
    Timeline,
    curve,
)

STALENESS_POINTS: Final = 60
NO_WORKER: Final = "No worker has joined yet."


class LossKind(NamedTuple):
    """A loss that evaluations have; its curves differ from others by their dashes."""

    name: str
    get: Callable[[Evaluation], float | None]


LOSS_KINDS: Final = (
    LossKind("test", lambda evaluation: evaluation.test_loss),
    LossKind("training", lambda evaluation: evaluation.train_loss),
)
LOSS_NOTE: Final = (
    "Loss per row at each evaluation. The training loss is the mean since the evaluation before, "
    "measured before each update."
)
EPOCHS: Final = "epochs"
LOSS_TITLES: Final = {SECONDS: "Loss against training time", EPOCHS: "Loss against epochs"}


def run_figures(run: RunState, most: int = MAX_POINTS) -> list[Figure]:
    """All figures of a run, with at most about `most` points in each curve."""

    def shown(kind: LossKind, number: int) -> tuple[str, Style]:
        return kind.name, Style.number(number)

    workers, others = main_workers(run)
    figures: list[Figure] = [
        *(loss_plot(x, loss_curves(run, x, shown, most)) for x in LOSS_TITLES),
        utilization_plot(
            [
                curve(worker.name, worker.utilization, Style.number(number), most=most)
                for number, worker in enumerate(workers)
            ],
            others,
        ),
        share_chart(share_bars(run, workers), others),
        batch_sizes(run, most),
    ]
    if any(worker.missed.course.points for worker in run.workers):
        figures.append(staleness(run))
    return figures


def loss_curves(
    run: RunState, x: str, shown: Callable[[LossKind, int], tuple[str, Style]], most: int
) -> list[Curve]:
    """A curve over `x` for each kind of loss, with the name and style that `shown` returns."""
    curves = []
    for number, kind in enumerate(LOSS_KINDS):
        name, style = shown(kind, number)
        points = [
            (each.epochs if x == EPOCHS else each.seconds, kind.get(each)) for each in run.history
        ]
        curves.append(curve(name, points, style, most=most))
    return curves


def loss_plot(x: str, curves: Iterable[Curve]) -> Plot:
    """Curves of losses over training seconds or epochs."""
    look, empty = Look.LOG_IF_WIDE, "There is no evaluation yet."
    return Plot(LOSS_TITLES[x], x, "loss", tuple(curves), look, note=LOSS_NOTE, empty=empty)


def utilization_plot(curves: Iterable[Curve], note: str) -> Plot:
    """Curves of the utilization of workers; `note` is a further sentence."""
    return Plot(
        "Utilization of each worker",
        SECONDS,
        "utilization",
        tuple(curves),
        Look.FROM_ZERO,
        note="Rows per second since the evaluation before, over the peak that the worker measured "
        f"before training; a parked worker has 0.{note}",
        empty="No worker has measured its utilization, or there is no evaluation yet.",
    )


def share_chart(bars: Iterable[Bar], note: str) -> BarChart:
    """Shares of updates by worker; `note` is a further sentence."""
    return BarChart(
        "Share of updates by worker",
        tuple(bars),
        note=f"An update is one batch of a team of CPU threads, or one merge of a GPU.{note}",
        empty=NO_WORKER,
    )


def share_bars(
    run: RunState, workers: list[ObservedWorker], colour: int | None = None, group: str = ""
) -> Iterator[Bar]:
    """The share of each of some workers, in a colour of its own unless `colour` is given."""
    for number, worker in enumerate(workers):
        share = worker.updates.value / run.updates if run.updates else 0.0
        name, text = f"{worker.name} ({worker.device})", f"{share:.0%} of {run.updates:,} updates"
        yield Bar(name, share, text, number if colour is None else colour, group)


def batch_sizes(run: RunState, most: int) -> Plot:
    """The batch size of each worker over time."""
    workers, others = main_workers(run)
    curves = []
    for number, worker in enumerate(workers):
        points = [(seconds, size) for seconds, size in worker.batch_sizes.points if size >= 1]
        if points:
            end = run.seconds if worker.left_at is None else worker.left_at
            points.append((max(end, points[-1][0]), points[-1][1]))
        curves.append(curve(worker.name, points, Style.number(number), steps=True, most=most))
    return Plot(
        "Batch sizes",
        SECONDS,
        "rows per update",
        tuple(curves),
        Look.POWERS_OF_TWO,
        note="Rows per update of a team of CPU threads, or per batch of a GPU." + others,
        empty="No worker is ready yet.",
    )


def staleness(run: RunState) -> Plot:
    """The staleness of each GPU over time."""
    gpus = [worker for worker in run.workers if worker.missed.course.points]
    curves = [
        curve(worker.name, staleness_points(worker), Style.number(number))
        for number, worker in enumerate(gpus[:MAX_CURVES])
    ]
    return Plot(
        "Staleness of GPUs",
        SECONDS,
        "updates by others",
        tuple(curves),
        Look.FROM_ZERO,
        note="Updates by other workers between a GPU's pull and its merge, mean of each interval.",
    )


def staleness_points(worker: ObservedWorker) -> list[Point]:
    """(training seconds, mean updates by others from pull to merge) of even intervals."""
    course, updates = worker.missed.course.points, worker.updates.course.points
    stride = max(1, len(course) // STALENESS_POINTS)
    chosen = [course[0], *course[stride - 1 : -1 : stride], course[-1]] if course else []
    before = (chosen[0][0], 0) if chosen else (0.0, 0)
    points, merges = [], 0
    for (_, missed), (seconds, total) in pairwise([before, *chosen]):
        index = bisect_right(updates, seconds, key=lambda point: point[0])
        done = updates[index - 1][1] if index else 0
        if done > merges:
            points.append((seconds, (total - missed) / (done - merges)))
            merges = done
    return points


def main_workers(run: RunState) -> tuple[list[ObservedWorker], str]:
    """The workers that figures show, in the order in which they joined; a sentence about others."""
    if len(run.workers) <= MAX_CURVES:
        return run.workers, ""
    most = sorted(run.workers, key=lambda worker: -worker.rows.value)[:MAX_CURVES]
    others = len(run.workers) - MAX_CURVES
    what = "1 other worker is" if others == 1 else f"{others:,} other workers are"
    return [w for w in run.workers if any(w is each for each in most)], (
        f" The {MAX_CURVES} workers with most rows are shown; {what} left out."
    )


INCIDENTS: Final[dict[type[Event], str]] = {  # event of `events.state.TIMED`: its lane
    CheckpointWritten: "checkpoints",
    Poisoned: "roll-backs",
    OutOfMemory: "out of memory",
    Resumed: "resumed",
}


def timeline(run: RunState) -> Timeline:
    """Workers from when they are ready until they leave, and incidents, over the seconds."""
    workers, others = main_workers(run)
    lanes = [_worker_lane(worker, run.seconds) for worker in workers]
    for number, (event, name) in enumerate(INCIDENTS.items()):
        if all_moments := run.occurrences[event]:
            moments = thinned_moments(all_moments)
            lanes.append(Lane(name, moments=moments, count=len(all_moments), marker=number + 1))
    return Timeline(
        "Time line",
        run.seconds,
        tuple(lanes),
        note="A bar is a worker from when it is ready until it leaves; a thin line in its place: "
        "it is parked; a cross at its end: it is lost." + others,
        empty=NO_WORKER,
    )


def _worker_lane(worker: ObservedWorker, seconds: float) -> Lane:
    end = seconds if worker.left_at is None else worker.left_at
    start = min(worker.joined_at, end)
    lost = end if worker.state == "lost" else None
    name = f"{worker.name} ({worker.device})"
    return Lane(name, (start, end), tuple(_parked(worker, end)), lost)


def _parked(worker: ObservedWorker, end: float) -> list[tuple[float, float]]:
    """The intervals in which a worker was parked until second `end`; close ones are joined."""
    intervals: list[tuple[float, float]] = []
    for (start, parked), (stop, _) in pairwise([*worker.parked.points, (end, 0)]):
        if not parked or stop <= start:
            continue
        if intervals and start - intervals[-1][1] < end / MAX_POINTS:
            intervals[-1] = (intervals[-1][0], stop)
        else:
            intervals.append((start, stop))
    return intervals


def thinned_moments(moments: list[float]) -> tuple[float, ...]:
    """At most MAX_POINTS of the times, evenly chosen."""
    stride = -(-len(moments) // MAX_POINTS) or 1
    return tuple(moments[::stride])
