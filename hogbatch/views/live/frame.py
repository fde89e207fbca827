"""One frame of the view: the lines that a terminal of some size shows of a run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from hogbatch.events.records import Evaluation
from hogbatch.events.state import Condition, RunState
from hogbatch.views.console import loss_text, speed_text
from hogbatch.views.live.activity import Activity
from hogbatch.views.live.capabilities import SMALLEST, Capabilities, Size
from hogbatch.views.live.curve import Point, curve
from hogbatch.views.live.layout import Wanted, layout
from hogbatch.views.status.text import (
    HEADER,
    Cells,
    WorkerTable,
    aligned,
    column_widths,
    duration,
    moment,
    worker_table,
)

MOST_POINTS: Final = 1000  # of a curve
MOST_GONE: Final = 4  # workers that have left
LABEL: Final = 8  # columns of the labels on the left
LEAST_BAR: Final = 8  # columns
LEAST_HEIGHT: Final = 4  # of a terminal that is shown more than one line
LEAST_CURVE: Final = 16  # columns
GAP: Final = "  "
LESS_IMPORTANT: Final = ("stale", "device", "share", "util.", "updates")  # columns, first to omit
STATE_STYLES: Final = {
    "training": "bold green",
    "finished": "bold green",
    "stopped": "bold yellow",
    "waiting": "bold yellow",
    "failed": "bold red",
    "killed?": "bold red",
}
WORKER_STYLES: Final = {"lost": "red", "left": "dim", "parked": "dim", "compiles": "yellow"}


class PlottedValue(NamedTuple):
    """A value of evaluations that is shown with its course."""

    name: str
    get: Callable[[Evaluation], float | None]
    style: str


LOSSES: Final = (
    PlottedValue("train", lambda evaluation: evaluation.train_loss, "cyan"),
    PlottedValue("test", lambda evaluation: evaluation.test_loss, "green"),
)


@dataclass(frozen=True, slots=True)
class View:
    """What a frame shows."""

    run: RunState
    condition: Condition
    activity: Activity | None = None
    elapsed: float = 0.0  # seconds since the activity began


def frame(view: View, size: Size, able: Capabilities) -> list[Text]:
    """The lines of a frame: narrower than the terminal, and fewer than it has.

    A terminal that has become too small is shown one line.
    """
    drawing = Drawing(view, able, size.width - 1)
    if size.width < SMALLEST.width or size.height < LEAST_HEIGHT:
        return [drawing.cropped(drawing.state())] if size.width > 1 and size.height > 1 else []
    return drawing.lines(size)


@dataclass(frozen=True, slots=True)
class Drawing:
    """Draws the parts of a frame in `width` columns."""

    view: View
    able: Capabilities
    width: int

    def lines(self, size: Size) -> list[Text]:
        """All lines of a frame for a terminal of this size."""
        run, values, progress, table = self.view.run, self._values(), self._progress(), self._rows()
        wanted = Wanted(
            progress=len(progress),
            figures=bool(values),
            curves=bool(values) and len(run.history) > 1,
            workers=len(table.rows) + bool(table.left_out),
            events=len(run.notices),
        )
        chosen = layout(size, wanted)
        parts = [
            [*self._header()[: chosen.header], *progress[: chosen.progress]],
            self._figures(values, chosen.plot) if chosen.figures else [],
            self._table(table, chosen.workers) if chosen.workers else [],
            self._events(chosen.events) if chosen.events else [],
        ]
        lines: list[Text] = []
        for part in filter(None, parts):
            if lines:
                lines += [Text("")] * chosen.gap
            lines += part
        return [self.cropped(line) for line in lines]

    def cropped(self, line: Text) -> Text:
        """The line in at most `width` columns."""
        if cell_len(line.plain) > self.width:
            dots = "…" if self.able.unicode else "..."
            line.truncate(max(0, self.width - len(dots)), overflow="crop")
            line.append(dots[: self.width])
        return line

    # The state and the activity ---------------------------------------------------------------

    def state(self) -> Text:
        """The state of the run, and its data."""
        condition, started = self.view.condition, self.view.run.started
        line = Text.assemble((condition.state, STATE_STYLES.get(condition.state, "bold")))
        if condition.reason and not condition.active and condition.state != "preparing":
            line.append(f": {self.able.clean(condition.reason)}")
        elif started is not None:
            line.append(f"{GAP}{self.able.clean(started.description)}")
            if rehearsed := self.view.run.rehearsed:
                server = self.able.clean(rehearsed)
                line.append(f"{GAP}rehearsed on {server}: all times are simulated")
        return line

    def _header(self) -> list[Text]:
        activity = self.view.activity
        if activity is None:
            return [self.state()]
        text = self.able.clean(activity.text)
        if activity.fraction is not None:
            right = f"{activity.fraction:4.0%}{GAP}{activity.amount}"
            return [self.state(), self._bar_line("now", text, activity.fraction, [right])]
        parts = [text, *filter(None, [activity.amount])]
        if self.view.elapsed >= 1 and not text.startswith("training"):
            parts.append(duration(float(int(self.view.elapsed))))
        return [self.state(), self._labelled("now", GAP.join(parts))]

    # Progress ---------------------------------------------------------------------------------

    def _progress(self) -> list[Text]:
        """The lines on the epoch, on the run, and on the target, as far as they apply."""
        run = self.view.run
        lines = []
        if run.train_rows and (run.trains or run.rows.value):
            lines.append(self._epoch())
            lines.append(self._run())
        if run.started is not None and run.started.target_loss is not None and run.ended is None:
            best = run.best.test_loss if run.best is not None else None
            text = f"test loss {run.started.target_loss:g}{GAP}best {loss_text(best)}"
            lines.append(self._labelled("target", text))
        return lines

    def _epoch(self) -> Text:
        run = self.view.run
        most = run.started.epochs if run.started is not None else None
        text = f"{run.epochs or 0:.2f}" + (f" of {most}" if most else "")
        fraction = run.epoch_fraction or 0.0
        right = [f"{fraction:4.0%}"]
        if (speed := run.rows_per_second) is not None:
            right.append(speed_text(speed))
        return self._bar_line("epoch", text, fraction, right)

    def _run(self) -> Text:
        run, active = self.view.run, self.view.condition.active
        limit = run.started.max_seconds if run.started is not None else None
        text = f"{run.seconds:.1f} s" + (f" of {limit:g} s" if limit else "")
        left = run.seconds_left() if active else None
        right = [] if left is None else [f"at most {duration(left)} left"]
        if (patience := run.patience_left()) is not None:
            right.append(f"ends after {patience:.1f} epochs without a better model")
        if left is None and active:
            return self._labelled("run", GAP.join([text, *right]))
        fraction = 1.0 if left is None else run.seconds / max(run.seconds + left, 1e-9)
        return self._bar_line("run", text, fraction, right)

    def _labelled(self, label: str, text: str) -> Text:
        return Text.assemble((f"{label:{LABEL}}", "dim"), text)

    def _bar_line(self, label: str, text: str, fraction: float, right: Sequence[str]) -> Text:
        """A label, a text, a bar, and as many texts on the right as leave room for the bar."""
        line = self._labelled(label, text)
        shown = list(right)
        taken = cell_len(line.plain) + len(GAP)
        while (
            shown and taken + sum(len(GAP) + len(each) for each in shown) + LEAST_BAR > self.width
        ):
            shown.pop()
        room = self.width - taken - sum(len(GAP) + len(each) for each in shown)
        if room >= LEAST_BAR:
            line.append(GAP)
            line.append_text(self._bar(fraction, min(room, 40)))
        for each in shown:
            line.append(GAP + each)
        return line

    def _bar(self, fraction: float, width: int) -> Text:
        done = round(max(0.0, min(1.0, fraction)) * width)
        full, empty = ("━", "─") if self.able.unicode else ("#", "-")
        return Text.assemble((full * done, "green"), (empty * (width - done), "dim"))

    # Losses and metrics -----------------------------------------------------------------------

    def _values(self) -> list[PlottedValue]:
        """What is shown of evaluations: losses, and the first metric."""
        if not self.view.run.history:
            return []
        run = self.view.run
        values = [value for value in LOSSES if value.get(run.history[-1]) is not None]
        metric = next(iter(run.history[-1].test_values), None)
        if metric is not None:
            values.append(PlottedValue(metric, partial(_metric, metric), "yellow"))
        return values

    def _figures(self, values: Sequence[PlottedValue], height: int) -> list[Text]:
        """The last losses and metrics, above their curves of `height` lines."""
        run = self.view.run
        if not height:
            return [_joined((self._figure(value, "") for value in values), self.width)]
        most = max(1, (self.width + len(GAP)) // (LEAST_CURVE + len(GAP)))
        values = values[:most]
        width = (self.width - len(GAP) * (len(values) - 1)) // len(values)
        lines = [Text() for _ in range(height + 1)]
        for number, value in enumerate(values):
            start = number * (width + len(GAP))
            best = value.get(run.best) if run.best is not None else None
            note = f"{GAP}best {loss_text(best)}" if value.name != "train" and best else ""
            figure = self._figure(value, note)
            if cell_len(figure.plain) > width:
                figure = self._figure(value, "")
            figure.truncate(width, overflow="crop")
            rows = _curve(_points(run, value), width, height, self.able.unicode)
            for line, part in zip(
                lines, [figure, *(Text(row, value.style) for row in rows)], strict=True
            ):
                line.append(" " * (start - cell_len(line.plain)))
                line.append_text(part)
        for line in lines:
            line.rstrip()
        return lines

    def _figure(self, value: PlottedValue, note: str) -> Text:
        last = value.get(self.view.run.history[-1])
        name = self.able.clean(value.name)
        return Text.assemble((f"{name} ", value.style), (loss_text(last), "bold"), (note, "dim"))

    # Workers and events -----------------------------------------------------------------------

    def _rows(self) -> WorkerTable:
        table = worker_table(self.view.run, self.view.condition.active, MOST_GONE)
        rows = [row._replace(cells=tuple(map(self.able.clean, row.cells))) for row in table.rows]
        return WorkerTable(rows, table.left_out)

    def _table(self, table: WorkerTable, height: int) -> list[Text]:
        """The table of workers in `height` lines, two or more."""
        limited, left_out = table.limited(height - 1)
        rows = [row.cells for row in limited]
        columns = _columns_that_fit(rows, self.width)
        chosen = [tuple(row[n] for n in columns) for row in (HEADER, *rows)]
        heading, *lines = aligned(chosen, self.width)
        shown_lines = [Text(heading, "dim")]
        for row, line in zip(rows, lines, strict=True):
            shown_lines.append(Text(line, WORKER_STYLES.get(row[-1].partition(" ")[0], "")))
        if left_out and len(shown_lines) < height:
            shown_lines.append(Text(f"and {left_out} more", "dim"))
        return shown_lines

    def _events(self, height: int) -> list[Text]:
        simulated = self.view.run.rehearsed is not None
        return [
            Text.assemble(
                (f"{moment(notice, simulated, '%H:%M:%S')}{GAP}", "dim"),
                self.able.clean(notice.text),
            )
            for notice in list(self.view.run.notices)[-height:]
        ]


def _metric(name: str, evaluation: Evaluation) -> float | None:
    return evaluation.test_values.get(name)


def _points(run: RunState, value: PlottedValue) -> tuple[Point, ...]:
    """The course of a value, thinned if there are many evaluations: training seconds and values."""
    step = 1 + len(run.history) // MOST_POINTS
    points = [(each.seconds, value.get(each)) for each in run.history[-1::-step]]
    return tuple((seconds, found) for seconds, found in reversed(points) if found is not None)


@lru_cache(maxsize=16)
def _curve(points: tuple[Point, ...], width: int, height: int, unicode: bool) -> list[str]:
    """`curve`, which changes only with an evaluation or with the size of the terminal."""
    return curve(points, width, height, unicode)


def _joined(parts: Iterable[Text], width: int) -> Text:
    """As many of the parts as fit in one line, with one space between them if necessary."""
    parts = list(parts)
    gap = GAP if cell_len(GAP.join(part.plain for part in parts)) <= width else " "
    line = Text()
    for part in parts:
        joined = Text(gap if line.plain else "").append_text(part)
        if line.plain and cell_len(line.plain + joined.plain) > width:
            break
        line.append_text(joined)
    return line


def _columns_that_fit(rows: Sequence[Cells], width: int) -> list[int]:
    """The columns of the table of workers that have a value, without the least important ones."""
    widths = column_widths([HEADER, *rows])
    columns = [
        n
        for n, name in enumerate(HEADER)
        if name != "stale" or any(row[n] not in ("", "-") for row in rows)
    ]
    for name in LESS_IMPORTANT:
        if sum(widths[n] + 1 for n in columns) - 1 <= width:
            break
        columns = [n for n in columns if HEADER[n] != name]
    return columns
