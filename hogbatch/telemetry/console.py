"""Progress for the user: one plain line per evaluation."""

import sys
from typing import TextIO

from hogbatch.machine.printable import encodable, printable_lines
from hogbatch.telemetry.records import Evaluation, RunTotals, WorkerRecord


class Console:
    """Prints to `stream`, by default the current stdout. Every line starts with `prefix`.

    Stops printing, without an error, when the stream is closed.
    """

    def __init__(self, quiet: bool, stream: TextIO | None = None, prefix: str = "") -> None:
        self._prefix = prefix
        self._stream = None if quiet else stream or sys.stdout
        self._last = (0.0, 0)  # training seconds and rows at the last line

    def say(self, line: str) -> None:
        """Print one line."""
        if self._stream is None:
            return
        try:
            text = printable_lines(self._prefix + line)
            print(encodable(text, self._stream), file=self._stream, flush=True)
        except OSError:  # a closed pipe or terminal
            self._stream = None

    def report(self, evaluation: Evaluation, totals: RunTotals) -> None:
        """Print the progress of the run."""
        seconds, rows = self._last
        self._last = (evaluation.seconds, evaluation.rows)
        elapsed = evaluation.seconds - seconds
        speed = (evaluation.rows - rows) / elapsed if elapsed > 0 else 0.0
        self.say(line(evaluation, totals, speed))


def line(evaluation: Evaluation, totals: RunTotals, rows_per_second: float) -> str:
    """The progress line: seconds, epochs, rows/s, losses, metrics, then all workers."""
    parts = [
        f"{evaluation.seconds:8.2f} s",
        f"epoch {evaluation.epochs:.2f}",
        f"{rows_per_second:,.0f} rows/s",
        f"train {_number(evaluation.train_loss)}",
    ]
    if evaluation.test_loss is not None:
        parts.append(f"test {_number(evaluation.test_loss)}")
    parts += [f"{name} {value:.4f}" for name, value in evaluation.test_values.items()]
    parts += [
        _worker(worker, evaluation.utilization.get(worker.name))
        for worker in totals.workers
        if worker.left_at is None
    ]
    return "  ".join(parts)


def _worker(worker: WorkerRecord, utilization: float | None) -> str:
    shown = f"{worker.name} batch {worker.batch_size} updates {worker.update_share:.0%}"
    return shown if utilization is None else f"{shown} utilization {utilization:.0%}"


def _number(loss: float | None) -> str:
    return "-" if loss is None else f"{loss:.4f}"
