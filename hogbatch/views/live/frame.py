"""One frame of the view: the lines that a terminal of some size shows of a run."""

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from hogbatch.events.event import Evaluation
from hogbatch.events.state import Condition, RunState
from hogbatch.machine.printable import printable, rounded
from hogbatch.views.console import figure, loss_of, readable, speed_text
from hogbatch.views.live.activity import Activity
from hogbatch.views.status import text as status

MOST_GONE: Final = 4  # workers that have left
MOST_EVENTS: Final = 8
HIGH: Final = 16  # lines; on lower terminals, parts are closer together and have less
FEW_LINES: Final = 4  # of the table of workers and the events, before more values are shown
BAR: Final = (8, 40)  # columns, least and most
CURVE: Final = "▁▂▃▄▅▆▇█"
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
LOSS_STYLES: Final = {"validated": "green", "train": "cyan"}


class Frame(NamedTuple):
    """What a terminal of `size` columns and lines shows of a run.

    It is narrower than the terminal, has fewer lines, and consists of characters of its `encoding`.
    """

    run: RunState
    condition: Condition
    activity: Activity | None
    elapsed: float  # seconds since the activity began
    size: tuple[int, int]
    encoding: str

    def lines(self) -> list[Text]:
        """All lines of a frame; the workers get those that the parts before them leave."""
        height = self.size[1] - 1
        high = height >= HIGH
        first = [*self._header(), *self._progress()[: 3 if high else 2]]
        room = height - len(first) - (3 if high else 0)
        values = self._values()[: max(1, room - FEW_LINES)]
        room -= len(values)
        workers = self._workers(room - min(2 if high else 1, len(self.run.notices)))
        events = self._events(min(MOST_EVENTS, max(0, room - len(workers))))
        lines = first
        for part in filter(None, (values, workers, events)):
            lines = [*lines, *([Text("")] if high else []), *part]
        for line in lines:
            line.truncate(max(0, self._width))
            line.rstrip()
        return lines[: max(0, height)]

    @property
    def _width(self) -> int:
        return self.size[0] - 1

    def _clean(self, text: str) -> str:
        """Text from a run with only those characters that do no harm and can be shown."""
        return printable(text).encode(self.encoding, "backslashreplace").decode(self.encoding)

    @property
    def _is_unicode(self) -> bool:
        return self.encoding.startswith("utf")

    def _line(self, label: str, *texts: str, fraction: float | None = None) -> Text:
        """A label, texts, and a bar if a fraction is given and there is room."""
        line = Text.assemble((f"{label:{status.LABEL}}", "dim"), GAP.join(filter(None, texts)))
        least, most = BAR
        room = min(most, self._width - cell_len(line.plain) - len(GAP))
        if fraction is not None and room >= least:
            full, empty = "━─" if self._is_unicode else "#-"
            done = round(max(0.0, min(1.0, fraction)) * room)
            line.append(GAP).append(full * done, "green").append(empty * (room - done), "dim")
        return line

    # The state and the activity ---------------------------------------------------------------

    def _header(self) -> list[Text]:
        activity = self.activity
        if activity is None:
            return [self._state()]
        since = self.elapsed >= 1 and activity.fraction is None
        since = since and not activity.text.startswith("training")
        texts = [
            self._clean(activity.text),
            "" if activity.fraction is None else f"{activity.fraction:4.0%}",
            activity.amount or "",
            status.duration(float(int(self.elapsed))) if since else "",
        ]
        return [self._state(), self._line("now", *texts, fraction=activity.fraction)]

    def _state(self) -> Text:
        """The state of the run, and its data."""
        condition, started = self.condition, self.run.started
        line = Text(condition.state, STATE_STYLES.get(condition.state, "bold"))
        rest = ""
        if condition.reason and not condition.active and condition.state != "preparing":
            rest = f": {condition.reason}"
        elif started is not None:
            rest = GAP + started.description
            if rehearsed := self.run.rehearsed:
                rest += f"{GAP}rehearsed on {rehearsed}: all times are simulated"
        return Text.assemble(line, self._clean(rest))

    # Progress and values ------------------------------------------------------------------------

    def _progress(self) -> list[Text]:
        """The lines on the epoch, on the run, and on the target, as far as they apply."""
        run, started = self.run, self.run.started
        lines = []
        if run.train_rows and (run.trains or run.rows.value):
            lines += [self._epoch(), self._seconds()]
        if started is not None and started.target_loss is not None and run.ended is None:
            best = figure(run.best.validation_loss if run.best is not None else None)
            target = f"validation loss {started.target_loss:g}"
            lines.append(self._line("target", target, f"best {best}"))
        return lines

    def _epoch(self) -> Text:
        run = self.run
        most = run.started.epochs if run.started is not None else None
        text = f"{run.epochs or 0:.2f}" + (f" of {most}" if most else "")
        fraction, speed = run.epoch_fraction or 0.0, run.rows_per_second
        shown = "" if speed is None else speed_text(speed)
        return self._line("epoch", text, f"{fraction:4.0%}", shown, fraction=fraction)

    def _seconds(self) -> Text:
        run, active = self.run, self.condition.active
        limit = run.started.max_seconds if run.started is not None else None
        texts = [f"{run.seconds:.1f} s" + (f" of {rounded(limit)} s" if limit else "")]
        left, patience = run.seconds_left() if active else None, run.patience_left()
        if left is not None:
            texts.append(f"at most {status.duration(left)} left")
        if patience is not None:
            texts.append(f"ends after {patience:.1f} epochs without a better model")
        fraction = None if left is None else run.seconds / max(run.seconds + left, 1e-9)
        return self._line("run", *texts, fraction=fraction)

    def _values(self) -> list[Text]:
        """The last values, the best ones, and the courses."""
        loss, best = loss_of(self.run.started), self.run.best
        courses = [shown_values(each, loss) for each in self.run.history]
        no_best = {"train": None, "noise": None}
        best_values = shown_values(best, loss) | no_best if best is not None else {}
        return [
            self._value(name, [each[name] for each in courses if name in each], best_values)
            for name in (courses[-1] if courses else {})
        ]

    def _value(self, name: str, course: Sequence[float], best: Mapping[str, float | None]) -> Text:
        found = best.get(name)
        shown = "" if found is None else f"best {figure(found)}"
        line = self._line(self._clean(name), figure(course[-1]), f"{shown:11}")
        room = self._width - cell_len(line.plain) - len(GAP)
        if self._is_unicode and len(course) > 1 and room > 0:
            line.append(GAP).append(curve(course, room), LOSS_STYLES.get(name, "yellow"))
        return line

    # Workers and events -----------------------------------------------------------------------

    def _workers(self, height: int) -> list[Text]:
        """The table of workers in at most `height` lines; none if that is less than two."""
        table = status.worker_table(self.run, self.condition.active, MOST_GONE)
        if not table.rows or height < 2:
            return []
        limited, left_out = table.limited(height - 1)
        rows = [tuple(map(self._clean, row.cells)) for row in limited]
        columns = _columns_that_fit(rows, self._width)
        heading, *lines = status.aligned(
            [tuple(row[n] for n in columns) for row in (status.HEADER, *rows)], self._width
        )
        shown = [Text(heading, "dim")]
        for row, line in zip(rows, lines, strict=True):
            shown.append(Text(line, WORKER_STYLES.get(row[-1].partition(" ")[0], "")))
        if left_out and len(shown) < height:
            shown.append(Text(f"and {left_out} more", "dim"))
        return shown

    def _events(self, height: int) -> list[Text]:
        run = self.run
        lines = []
        for notice in list(run.notices)[len(run.notices) - height :]:
            when = status.moment(notice, run.rehearsed is not None, "%H:%M:%S")
            lines.append(Text.assemble((when + GAP, "dim"), self._clean(notice.text)))
        return lines


def shown_values(evaluation: Evaluation, loss: str | None) -> dict[str, float]:
    """The first metric, the mean losses and the noise scale by their labels, as people read them.

    A validation loss that people read as this metric is left out.
    """
    values = dict(islice(evaluation.validation_values.items(), 1))
    if evaluation.validation_loss is not None:
        name, value = readable(loss, evaluation.validation_loss)
        values |= {} if name in values else {"validated": value}
    if evaluation.train_loss is not None:
        values["train"] = readable(loss, evaluation.train_loss)[1]
    if evaluation.noise_scale is not None:
        values["noise"] = evaluation.noise_scale
    return values


def curve(values: Sequence[float], width: int) -> str:
    """The course of values in at most `width` characters; one that is not finite is a space."""
    stride = -(-len(values) // width)
    chosen = values[::-1][::stride][::-1]  # the last one is among them
    finite = [value for value in chosen if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    step = (high - low) / (len(CURVE) - 1) or 1.0
    return "".join(
        CURVE[round((value - low) / step)] if math.isfinite(value) else " " for value in chosen
    )


def _columns_that_fit(rows: Sequence[status.Cells], width: int) -> list[int]:
    """The columns of the table of workers that have a value, without the least important ones."""
    widths = status.column_widths([status.HEADER, *rows])
    columns = [
        n
        for n, name in enumerate(status.HEADER)
        if name != "stale" or any(row[n] not in ("", "-") for row in rows)
    ]
    for name in LESS_IMPORTANT:
        if sum(widths[n] + 1 for n in columns) - 1 <= width:
            break
        columns = [n for n in columns if status.HEADER[n] != name]
    return columns
