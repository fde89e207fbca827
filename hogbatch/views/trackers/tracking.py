"""The trackers of a run, and the observer that gives them what the run reports."""

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import Any, Final, Self

from hogbatch.errors import needs_package
from hogbatch.events.event import AnyEvent, Evaluation
from hogbatch.events.names import METRICS, MLFLOW_RUN, MODEL, TENSORBOARD, WANDB, WANDB_RUN
from hogbatch.events.records import IntervalSpeed, WorkerRecord
from hogbatch.views.trackers.base import Point, Result, RunStart, Tracker
from hogbatch.views.trackers.names import evaluation_values

PATIENCE_S: Final = 30.0  # for all trackers together, at the end of a run
INTERRUPTED_PATIENCE_S: Final = 3.0  # after a second Ctrl-C
CLASSES: Final = {  # module and name of each, and its files in the run directory
    "csv": ("csv_file", "CsvFile", (METRICS,)),
    "tensorboard": ("tensorboard_events", "TensorBoardEvents", (TENSORBOARD,)),
    "mlflow": ("mlflow_run", "MlflowRun", (MLFLOW_RUN,)),
    "wandb": ("wandb_run", "WandbRun", (WANDB, WANDB_RUN)),
}


def tracker_class(name: str) -> Callable[[RunStart], Tracker]:
    """Import the tracker `name`; UsageError if its package cannot be imported."""
    module, own, _ = CLASSES[name]
    with needs_package(f"log {name}", name, name):
        kind: Callable[[RunStart], Tracker] = getattr(import_module(f".{module}", __package__), own)
    return kind


class Feed:
    """A queue of what one tracker has to log, and the thread that calls the tracker."""

    def __init__(self, name: str, begin: Callable[[RunStart], Tracker], run: RunStart) -> None:
        self.name = name
        self.notices: queue.SimpleQueue[str] = queue.SimpleQueue()  # sentences for the user
        # In Python 3.11, a thread whose join is interrupted by Ctrl-C counts as ended.
        self.done = threading.Event()
        self._items: queue.SimpleQueue[Point | Result] = queue.SimpleQueue()
        # The process can end although a daemon thread still waits for a server.
        threading.Thread(target=self._work, args=(begin, run), daemon=True).start()

    def put(self, item: Point | Result) -> None:
        """Put an evaluation into the queue, or the result as the last item."""
        if not self.done.is_set():
            self._items.put(item)

    def _work(self, begin: Callable[[RunStart], Tracker], run: RunStart) -> None:
        try:
            tracker = begin(run)
            if tracker.note:
                self.notices.put(tracker.note)
            while isinstance(item := self._items.get(), Point):
                tracker.log(item)
            tracker.close(item)
        except BaseException as error:
            first = [type(error).__name__, *str(error).strip().splitlines()[:1]]
            self.notices.put(
                f"the {self.name} tracker has stopped: {': '.join(first).rstrip('.')}; "
                "the values are in events.jsonl"
            )
        finally:
            self.done.set()


class Tracking:
    """Gives what one run reports to its trackers, from its start to the end of the `with` block.

    `say` prints a line for the user; it is called on the thread of the coordinator only.
    """

    def __init__(
        self,
        names: Sequence[str],
        run: RunStart,
        say: Callable[[str], None],
        reached: tuple[float, int] = (0.0, 0),
    ) -> None:
        """`reached` are the training seconds and rows at the start; above 0 in a resumed run."""
        self._names, self._run, self._say = names, run, say
        self._speed = IntervalSpeed(*reached)
        self._feeds: list[Feed] = []
        self._summary: Mapping[str, Any] | None = None

    def __enter__(self) -> Self:
        names = dict.fromkeys(self._names)
        self._feeds = [Feed(name, tracker_class(name), self._run) for name in names]
        return self

    def event(self, event: AnyEvent, workers: Sequence[WorkerRecord] = ()) -> None:
        """Print what trackers have to say; give an evaluation to all of them, without waiting."""
        self._print_notices()
        if isinstance(event, Evaluation):
            speed = self._speed.next(event.seconds, event.rows)
            values = evaluation_values(event, workers, speed)
            for feed in self._feeds:
                feed.put(Point(event.rows, event.seconds, values))

    def _print_notices(self) -> None:
        for feed in self._feeds:
            while not feed.notices.empty():
                self._say(feed.notices.get())

    def conclude(self, summary: Mapping[str, Any]) -> None:
        """Take the results of the run, as in summary.json."""
        self._summary = summary

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        result = run_result(self._summary, error)
        if (model := self._run.run_dir / MODEL).is_file():
            result["result/model"] = str(model)
        interrupted = isinstance(error, KeyboardInterrupt)
        deadline = time.monotonic() + (INTERRUPTED_PATIENCE_S if interrupted else PATIENCE_S)
        with suppress(KeyboardInterrupt):  # Ctrl-C ends the waiting
            for feed in self._feeds:
                feed.put(result)
            for feed in self._feeds:
                feed.done.wait(max(0.0, deadline - time.monotonic()))
        if late := [feed.name for feed in self._feeds if not feed.done.is_set()]:
            self._say(f"{', '.join(late)}: not all values were sent; they are in events.jsonl")
        self._print_notices()


def run_result(
    summary: Mapping[str, Any] | None, error: BaseException | None
) -> dict[str, str | float]:
    """The result of a run with this `summary`, which is None if it has ended early by `error`."""
    result: dict[str, str | float] = {}
    if summary is not None:
        result = {"result/status": summary["status"], "result/reason": summary["reason"]}
        for name in ("validation", "test"):
            if summary[name]:
                result[f"result/{name}_loss"] = summary[name]["loss"]
    if isinstance(error, KeyboardInterrupt):
        return result | {"result/status": "stopped", "result/reason": "interrupted"}
    if error is not None:
        reason = str(error) or type(error).__name__
        return result | {"result/status": "failed", "result/reason": reason}
    return result
