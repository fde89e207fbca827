"""The observer that gives what a run reports to its experiment trackers."""

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from hogbatch.checkpoint.names import MODEL
from hogbatch.errors import HogbatchError
from hogbatch.telemetry.records import Evaluation, RunTotals
from hogbatch.trackers.base import Point, RunDescription, RunResult, Setting
from hogbatch.trackers.choose import tracker_for_run
from hogbatch.trackers.delivery import Delivery
from hogbatch.trackers.names import evaluation_values

PATIENCE_S: Final = 30.0  # for all trackers together, at the end of a run
INTERRUPTED_PATIENCE_S: Final = 3.0  # after a second Ctrl-C
SILENCE_S: Final = 2.0  # of waiting, after which the user is told why


class Tracking:
    """Gives what one run reports to its trackers, from its start to the end of the `with` block.

    `say` prints a line for the user; it is called on the thread of the coordinator only.
    """

    def __init__(
        self,
        names: Sequence[str],
        run: RunDescription,
        say: Callable[[str], None],
        reached: tuple[float, int] = (0.0, 0),
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`reached` are the training seconds and rows at the start; above 0 in a resumed run."""
        self._names, self._run, self._say = tuple(dict.fromkeys(names)), run, say
        self._last = reached
        self._patience_s = patience_s
        self._deliveries: list[Delivery] = []
        self._summary: Mapping[str, Any] | None = None

    def __enter__(self) -> Self:
        self._deliveries = [
            Delivery(name, tracker_for_run(name), self._run) for name in self._names
        ]
        return self

    def event(self, event: Mapping[str, Any]) -> None:
        """Print what trackers have to say; events are not given to trackers."""
        self._print_notices()

    def report(self, evaluation: Evaluation, totals: RunTotals) -> None:
        """Give the values of an evaluation to every tracker, without waiting for any."""
        if not self._deliveries:
            return
        seconds, rows = self._last
        self._last = evaluation.seconds, evaluation.rows
        elapsed = evaluation.seconds - seconds
        speed = (evaluation.rows - rows) / elapsed if elapsed > 0 else 0.0
        values = evaluation_values(evaluation, totals.workers, speed)
        point = Point(evaluation.rows, evaluation.seconds, values)
        for delivery in self._deliveries:
            delivery.log(point)
        self._print_notices()

    def conclude(self, summary: Mapping[str, Any]) -> None:
        """Take the results of the run, as in summary.json."""
        self._summary = summary

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        model = Path(self._run.run_dir) / MODEL
        result = run_result(self._summary, error, str(model) if model.is_file() else None)
        if isinstance(error, KeyboardInterrupt):
            self._patience_s = min(self._patience_s, INTERRUPTED_PATIENCE_S)
        for delivery in self._deliveries:
            delivery.finish(result)
        with suppress(KeyboardInterrupt):  # Ctrl-C ends the waiting
            self._wait()
        for delivery in self._deliveries:
            if not delivery.join(0):
                delivery.abandon()
                self._say(
                    f"{delivery.name}: the result and {delivery.evaluations - delivery.stored} of "
                    f"{delivery.evaluations} evaluations were not sent; they are in events.jsonl"
                )
        self._print_notices()

    def _wait(self) -> None:
        """Wait until all trackers have stored everything, but not longer than `patience_s`."""
        deadline = time.monotonic() + self._patience_s
        told_at = time.monotonic() + min(SILENCE_S, self._patience_s)
        if all(each.join(max(0.0, told_at - time.monotonic())) for each in self._deliveries):
            return
        left = [delivery for delivery in self._deliveries if not delivery.join(0)]
        self._say(
            f"sending the last values to {', '.join(each.name for each in left)}, for at most "
            f"{self._patience_s:.0f} s; Ctrl-C ends the waiting"
        )
        for delivery in left:
            delivery.join(max(0.0, deadline - time.monotonic()))

    def _print_notices(self) -> None:
        for delivery in self._deliveries:
            with suppress(queue.Empty):
                while True:
                    self._say(delivery.notices.get_nowait())


def describe_run(
    run_dir: Path, settings: Mapping[str, Setting], seconds: float, rows: int | None
) -> RunDescription:
    """A run that begins now at `seconds` of training; `rows` as `RunDescription.resumed_rows`."""
    return RunDescription(str(run_dir.absolute()), settings, time.time() - seconds, rows)


def run_result(
    summary: Mapping[str, Any] | None, error: BaseException | None, model: str | None
) -> RunResult:
    """The result of a run with this `summary`, which is None if it has ended early by `error`.

    `model` is the path of the model file, if there is one.
    """
    test = summary["test"] if summary else None
    loss = test["loss"] if test else None
    if isinstance(error, KeyboardInterrupt):
        return RunResult("stopped", "interrupted", loss, model)
    if error is not None:
        reason = str(error) if isinstance(error, HogbatchError) else type(error).__name__
        return RunResult("failed", reason, loss, model)
    if summary is None:
        return RunResult("failed", "", loss, model)
    return RunResult(summary["status"], summary["reason"], loss, model)
