"""A progress bar of one line, for runs from Python in a notebook or a terminal."""

import shutil
import time
from collections.abc import Sequence
from typing import Final, TextIO

from hogbatch.events.event import AnyEvent, Evaluation, WorkerJoined, WorkerReady
from hogbatch.events.records import WorkerRecord
from hogbatch.events.state import RunState
from hogbatch.machine.printable import encodable, printable
from hogbatch.views.console import PlainConsole, loss_of, result_parts, speed_text

BAR: Final = 20  # columns
INTERVAL_S: Final = 0.2  # between two bars
USUAL: Final = (WorkerJoined, WorkerReady, Evaluation)  # events without a line of their own


class BarConsole(PlainConsole):
    """Prints lines that stay, and below them a bar that is updated in place until the end."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(False, stream)
        self._run = RunState()
        self._columns = 0  # of the bar that is shown
        self._drawn_at = -INTERVAL_S

    def say(self, line: str) -> None:
        self._draw("")
        super().say(line)

    def event(self, event: AnyEvent, workers: Sequence[WorkerRecord] = ()) -> None:
        self._run.apply(event)
        if not isinstance(event, USUAL):
            super().event(event, workers)
        if self._run.ended is not None:
            self._draw("")
        elif self._run.trains and time.monotonic() >= self._drawn_at + INTERVAL_S:
            self._drawn_at = time.monotonic()
            self._draw(bar(self._run, shutil.get_terminal_size().columns - 1))

    def _draw(self, line: str) -> None:
        """Replace the bar, and leave the cursor in front of its line."""
        if self._stream is not None and (line or self._columns):
            line = encodable(line, self._stream)
            self._write(f"\r{line:{self._columns}}\r")
            self._columns = len(line)


def bar(run: RunState, columns: int) -> str:
    """Progress, speed and the last results of a run that trains, in so many columns at most."""
    started, left = run.started, run.seconds_left()
    limit = f" of {started.epochs}" if started is not None and started.epochs else ""
    parts = [f"epoch {run.epochs or 0:.1f}{limit}"]
    if left is not None and run.seconds + left > 0:
        fraction = run.seconds / (run.seconds + left)
        done = round(BAR * fraction)
        parts.insert(0, f"[{'#' * done}{'-' * (BAR - done)}] {fraction:4.0%}")
    if run.rows_per_second is not None:
        parts.append(speed_text(run.rows_per_second))
    if run.history:
        parts += result_parts(run.history[-1], loss_of(started))
    return printable("  ".join(parts))[:columns]
