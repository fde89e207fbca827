"""Output for the user while a run trains."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TextIO

from hogbatch.config.losses import LOSSES
from hogbatch.data.progress import ReadProgress
from hogbatch.events.event import AnyEvent, Evaluation, Started
from hogbatch.events.records import IntervalSpeed, Observer, WorkerRecord
from hogbatch.machine.printable import encodable, printable_lines


class Console(Observer, Protocol):
    """Shows a run to the user. Stops, without an error, when its stream is closed."""

    def say(self, line: str) -> None:
        """Print one line that stays."""

    def busy(self, activity: str, progress: ReadProgress | None = None) -> None:
        """The run is busy with `activity` until the next call or event.

        `progress` is that of the files which are read meanwhile.
        """


class PlainConsole(Console):
    """Prints one line per evaluation, and per event that has a text, with `prefix`.

    `stream` is by default the current stdout; `interval` is the minimum of training seconds between
    two lines of evaluations.
    """

    def __init__(
        self, quiet: bool, stream: TextIO | None = None, prefix: str = "", interval: float = 0.0
    ) -> None:
        self._prefix, self._interval = prefix, interval
        self._stream = None if quiet else stream or sys.stdout
        self._loss: str | None = None  # its name
        self._speed = IntervalSpeed()

    def say(self, line: str) -> None:
        self._write(printable_lines(self._prefix + line) + "\n")

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(encodable(text, self._stream))
            self._stream.flush()
        except OSError:  # a closed pipe or terminal
            self._stream = None

    def busy(self, activity: str, progress: ReadProgress | None = None) -> None:
        pass

    def event(self, event: AnyEvent, workers: Sequence[WorkerRecord] = ()) -> None:
        if isinstance(event, Started):
            self._loss = loss_of(event)
        if event.TEXT:
            self.say(event.text)
        due = self._speed.seconds + self._interval  # training seconds
        if isinstance(event, Evaluation) and event.seconds >= due:
            speed = self._speed.next(event.seconds, event.rows)
            self.say(line(event, workers, speed, self._loss))


def line(
    evaluation: Evaluation,
    workers: Iterable[WorkerRecord],
    rows_per_second: float | None,
    loss: str | None = None,
) -> str:
    """The progress line: seconds, epochs, rows/s, metrics, losses, then present workers."""
    parts = [
        f"{evaluation.seconds:8.2f} s",
        f"epoch {evaluation.epochs:.2f}",
        *([] if rows_per_second is None else [speed_text(rows_per_second)]),
        *result_parts(evaluation, loss),
    ]
    parts += [
        _worker(worker, evaluation.utilization.get(worker.name))
        for worker in workers
        if worker.left_at is None
    ]
    return "  ".join(parts)


def speed_text(rows_per_second: float) -> str:
    """A speed as in progress lines."""
    return f"{rows_per_second:,.0f} rows/s"


def result_parts(evaluation: Evaluation, loss: str | None) -> list[str]:
    """Metrics and means of the loss named `loss` as in progress lines."""
    values, mean = evaluation.validation_values, evaluation.validation_loss
    parts = measured_parts(values, mean, loss, "validation")
    if evaluation.train_loss is None:
        return [*parts, "train -"]
    name, value = readable(loss, evaluation.train_loss)
    return [*parts, f"train {'' if name == 'loss' else f'{name} '}{figure(value)}"]


def measured_parts(
    values: Mapping[str, float], mean: float | None, loss: str | None, label: str
) -> list[str]:
    """Metrics `values`, and the `mean` of the loss under `label` if it is not read as a metric."""
    parts = [f"{name} {figure(value)}" for name, value in values.items()]
    if mean is not None:
        name, value = readable(loss, mean)
        parts += [f"{label} {figure(value)}"] if name not in values else []
    return parts


def loss_of(started: Started | None) -> str | None:
    """The name of a run's loss; None if it is unknown, or has no unit because targets differ."""
    return started.loss if started is not None and started.targets == 1 else None


def readable(loss: str | None, mean: float) -> tuple[str, float]:
    """`Loss.readable` of the loss named `loss`; None, or that of another version: unchanged."""
    return LOSSES[loss].readable(mean) if loss and loss in LOSSES else ("loss", mean)


def figure(value: float | None) -> str:
    """A loss or metric as in progress lines, of any unit: 0.3225, 12.346, 21,317."""
    if value is None:
        return "-"
    size = abs(value)
    if 0 < size < 1e-3 or size >= 1e15:
        return f"{value:.4g}"
    digits = math.floor(math.log10(size)) if 1 <= size < math.inf else 0
    return f"{value:,.{max(0, 4 - digits)}f}"


def _worker(worker: WorkerRecord, utilization: float | None) -> str:
    shown = f"{worker.name} batch {worker.batch_size} updates {worker.update_share:.0%}"
    return shown if utilization is None else f"{shown} utilization {utilization:.0%}"
