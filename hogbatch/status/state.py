"""The picture of a run that its events give: the only place where events are interpreted.

:class:`RunState` takes the events of events.jsonl in their order. It has no files and no clock, so
a run that is looked at while it trains, and one that ended long ago, give the same picture.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from hogbatch.model.losses import LOSSES
from hogbatch.status.series import Counter
from hogbatch.status.workers import FiguresOfServer, LeaseDone, ObservedWorker
from hogbatch.telemetry.announced import ANNOUNCED, sentence
from hogbatch.telemetry.records import Evaluation, WorkerRecord

MAX_NOTICES: Final = 100
TIMED: Final = ("checkpoint", "resumed", "poisoned", "out_of_memory")  # also kept as series

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Started:
    """The event "started": data, network, and when the run ends or may end."""

    at: float
    data: str
    train_rows: int
    test_rows: int
    sparse: bool
    network: str
    loss: str
    by_metric: bool = False  # the best model is that with the highest metric
    epochs: int | None = None
    max_seconds: float | None = None
    patience: float = 0
    target_loss: float | None = None
    process: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)  # as `machine.environment` reads it
    rehearsed: str | None = None  # the name of the simulated server


@dataclass(frozen=True, slots=True)
class Ended:
    """The event "ended"; `rows` are those of the run, if it has ended without an error."""

    status: str
    reason: str
    rows: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """The event "resumed", with what the checkpoint had reached."""

    at: float
    checkpoint: str
    rows: int
    seconds: float
    evaluations: int | None = None  # before the checkpoint; None: not recorded


@dataclass(frozen=True, slots=True)
class EvaluatedRows:
    """The event "evaluation_begins": how many rows of a set are evaluated."""

    rows: int
    of: str = "test"  # or "train"


@dataclass(frozen=True, slots=True)
class Notice:
    """An event in words."""

    at: float
    text: str
    seconds: float  # of training


@dataclass(slots=True)
class RunState:
    """A run as far as its events have been applied."""

    started: Started | None = None  # of the last life of the coordinator
    ended: Ended | None = None  # None: it is in progress, or was killed
    first_at: float | None = None  # of the first event, in Unix seconds
    last_at: float | None = None  # of the last event
    trains: bool = False  # a lease has been done since the start, or since it was resumed
    seconds: float = 0.0  # of training
    rows: Counter = field(default_factory=Counter)
    train_rows: int = 0  # of the training set; 0: not known yet
    history: list[Evaluation] = field(default_factory=list)
    best: Evaluation | None = None
    workers: list[ObservedWorker] = field(default_factory=list)  # in the order in which they joined
    notices: deque[Notice] = field(default_factory=lambda: deque(maxlen=MAX_NOTICES))
    occurrences: dict[str, Counter] = field(  # of the events TIMED
        default_factory=lambda: {name: Counter() for name in TIMED}
    )
    checkpoint_at: float | None = None  # training seconds of the state that the last one has
    evaluates: EvaluatedRows | None = None  # an evaluation has begun and not ended
    saves: bool = False  # a checkpoint is being written
    damaged: int = 0  # events with fields that are missing or of another type
    news: int = 0  # grows with each evaluation and notice

    @classmethod
    def summarised(cls, summary: Mapping[str, Any]) -> "RunState":
        """The picture that summary.json gives. ValidationError or KeyError if it is damaged."""
        state = cls(ended=Ended(summary["status"], summary["reason"], summary["rows"]))
        state.seconds = float(summary["train_seconds"])
        state.rows.value = summary["rows"]
        for entry in msgspec.convert(summary["history"], list[Evaluation]):
            state._evaluated(entry)
        saved = summary["saved"]
        if saved is not None:
            state.best = next((e for e in state.history if e.seconds == saved["seconds"]), None)
        records = msgspec.convert(summary["workers"], list[WorkerRecord])
        state.workers = [ObservedWorker.recorded(record) for record in records]
        if summary["epochs"]:
            state.train_rows = round(summary["rows"] / summary["epochs"])
        return state

    @property
    def epochs(self) -> float | None:
        """Passes over the training set; None while its size is not known."""
        return self.rows.value / self.train_rows if self.train_rows else None

    @property
    def present(self) -> list[ObservedWorker]:
        """The workers that have not left."""
        return [worker for worker in self.workers if worker.left_at is None]

    @property
    def updates(self) -> int:
        """Updates of all workers."""
        return sum(worker.updates.value for worker in self.workers)

    @property
    def rows_per_second(self) -> float | None:
        """Recent speed; after the end that of the whole run. None before it has trained."""
        if self.ended is None:
            return self.rows.speed(self.seconds)
        return self.rows.value / self.seconds if self.seconds else None

    def seconds_left(self) -> float | None:
        """Training seconds until the run ends at the latest; None if that is not known."""
        started, speed = self.started, self.rows_per_second
        if started is None or self.ended is not None:
            return None
        left = []
        if started.max_seconds is not None:
            left.append(started.max_seconds - self.seconds)
        if started.epochs is not None and speed:
            left.append((started.epochs * started.train_rows - self.rows.value) / speed)
        return max(0.0, min(left)) if left else None

    @property
    def epoch_fraction(self) -> float | None:
        """The part of the current epoch that is done; None while its size is not known."""
        if not self.train_rows:
            return None
        done, rest = divmod(self.rows.value, self.train_rows)
        return 1.0 if self.ended is not None and done and not rest else rest / self.train_rows

    def epoch_seconds_left(self) -> float | None:
        """Training seconds until the end of the current epoch; None if that is not known."""
        done, speed = self.epoch_fraction, self.rows_per_second
        if done is None or not speed or self.ended is not None:
            return None
        return (1 - done) * self.train_rows / speed

    def patience_left(self) -> float | None:
        """Epochs without a better model after which the run ends; None if it does not."""
        started = self.started
        if started is None or not started.patience or not self.history or self.ended is not None:
            return None
        since = self.history[-1].rows - (self.best.rows if self.best else 0)
        return max(0.0, started.patience - since / started.train_rows)

    def apply(self, event: Mapping[str, Any]) -> None:
        """Apply the next event; one that is damaged is counted and otherwise ignored."""
        try:
            self._apply(event["event"], event)
        except (KeyError, TypeError, ValueError, msgspec.ValidationError):
            self.damaged += 1
            return
        self.last_at = event["at"]
        if self.first_at is None:
            self.first_at = self.last_at

    def _apply(self, name: str, event: Mapping[str, Any]) -> None:
        match name:
            case "started":
                self._begin(_converted(event, Started))
            case "resumed":
                self._roll_back(_converted(event, Resumed))
            case "ended":
                self.ended = _converted(event, Ended)
                self.evaluates, self.saves = None, False
                self.news += 1
                if self.ended.seconds is not None:
                    self.seconds = self.ended.seconds
            case "lease":
                self._credit(_converted(event, LeaseDone))
            case "evaluation":
                self._evaluated(_converted(event, Evaluation))
            case "epoch":
                self.train_rows = self.train_rows or event["rows"]
            case "evaluation_begins":
                self.evaluates = _converted(event, EvaluatedRows)
            case "checkpoint_begins":
                self.saves = True
            case "checkpoint":
                self.checkpoint_at = float(event["seconds"])
                self.saves = False
            case "checkpoint_failed" | "poisoned":  # a model that is not finite is not written
                self.saves = False
            case _:
                self._change_worker(name, event)
        if name in TIMED:
            self.occurrences[name].add(1, self.seconds)
        if name in ANNOUNCED:
            self._note(event["at"], sentence(name, event))

    def _change_worker(self, name: str, event: Mapping[str, Any]) -> None:
        match name:
            case "worker_joined":
                worker = ObservedWorker(
                    event["worker"], event["runs_on"], self.seconds, event["pid"]
                )
                self.workers.append(worker)
            case "worker_compiles":
                self._worker(event).state = "compiles"
            case "worker_ready":
                self._worker(event).become_ready(int(event["batch_size"]), self.seconds)
            case "worker_parked":
                self._worker(event).park(event["reason"], self.seconds)
            case "worker_unparked":
                self._worker(event).unpark(self.seconds)
            case "server_workers":
                figures = _converted(event, FiguresOfServer)
                self._worker(event).take_figures(figures, self.seconds)
            case "out_of_memory":
                self._worker(event).resize(int(event["to"]), self.seconds)
            case "worker_lost":
                self._worker(event).leave("lost", event["reason"], self.seconds)
            case "goodbye" | "worker_left":
                self._worker(event).leave("left", "", self.seconds)

    def _worker(self, event: Mapping[str, Any]) -> ObservedWorker:
        """The last worker with the name that the event has; KeyError if there is none."""
        for worker in reversed(self.workers):
            if worker.name == event["worker"]:
                return worker
        raise KeyError(event["worker"])

    def _begin(self, started: Started) -> None:
        self.started, self.ended = started, None
        self.train_rows = started.train_rows
        self.trains, self.evaluates, self.saves = False, None, False
        self._dismiss_workers()
        self.rows.begin(self.seconds)
        self.news += 1

    def _dismiss_workers(self) -> None:
        """Their coordinator is gone, perhaps without having recorded that they left."""
        for worker in self.workers:
            worker.leave("left", "", self.seconds)

    def _roll_back(self, resumed: Resumed) -> None:
        """Work after the checkpoint is repeated, so it is forgotten."""
        self._dismiss_workers()
        self.seconds, self.checkpoint_at = resumed.seconds, resumed.seconds
        self.workers = [each for each in self.workers if each.joined_at <= resumed.seconds]
        for worker in self.workers:
            worker.roll_back(resumed.seconds)
        for occurrences in self.occurrences.values():
            occurrences.roll_back(resumed.seconds)
        # An evaluation with the rows of the checkpoint may have followed it, and is then repeated.
        history, self.history, self.best = self.history[: resumed.evaluations], [], None
        for evaluation in history:
            if evaluation.rows <= resumed.rows:
                self._remember(evaluation)
        self.seconds = resumed.seconds
        self.rows.roll_back(resumed.seconds)
        self.rows.value = resumed.rows
        self.rows.begin(resumed.seconds)
        self._note(resumed.at, f"resumed from {resumed.checkpoint}")

    def _credit(self, lease: LeaseDone) -> None:
        self.trains = True
        self.seconds = max(self.seconds, lease.seconds)
        self.rows.add(lease.rows[1] - lease.rows[0], lease.seconds)
        self._worker({"worker": lease.worker}).credit(lease)

    def _evaluated(self, evaluation: Evaluation) -> None:
        self._remember(evaluation)
        self.evaluates = None
        self.seconds = max(self.seconds, evaluation.seconds)
        for worker in self.present:
            if (measured := evaluation.utilization.get(worker.name)) is not None:
                worker.utilization.append((evaluation.seconds, measured))
        self.news += 1

    def _remember(self, evaluation: Evaluation) -> None:
        self.history.append(evaluation)
        if evaluation.epochs:
            self.train_rows = self.train_rows or round(evaluation.rows / evaluation.epochs)
        if self._is_best(evaluation):
            self.best = evaluation

    def _is_best(self, evaluation: Evaluation) -> bool:
        """Whether this is the best model so far, by the rule of the coordinator."""
        best = self.best
        if self.started is not None and self.started.by_metric and evaluation.test_values:
            ranking = LOSSES[self.started.loss].ranking
            return best is None or ranking(evaluation.test_values) < ranking(best.test_values)
        if evaluation.test_loss is None:
            return False
        return best is None or best.test_loss is None or evaluation.test_loss < best.test_loss

    def _note(self, at: float, text: str) -> None:
        self.notices.append(Notice(at, text, self.seconds))
        self.news += 1


def _converted(event: Mapping[str, Any], kind: type[T]) -> T:
    """The fields of an event; ValidationError if one is missing or of another type."""
    return msgspec.convert(event, kind)
