"""The picture of a run that its events give: the only place where events are interpreted.

:class:`RunState` takes the events of events.jsonl in their order. It has no files and no clock, so
a run that is looked at while it trains, and one that ended long ago, give the same picture.
The log contains the state itself from time to time (`event_log`), so all its values are such that
can be written as JSON.
"""

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hogbatch.events import event as events
from hogbatch.events.records import rank
from hogbatch.events.worker_figures import Counter, ObservedWorker

MAX_NOTICES: Final = 100
TIMED: Final = ("checkpoint", "resumed", "poisoned", "out_of_memory")  # their times are kept
REASONS: Final = {  # of a status that has no reason of its own
    "finished": "all epochs",
    "target": "the target loss is reached",
    "time": "the maximum training time is over",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """An event in words."""

    at: float
    text: str
    seconds: float  # of training


@dataclass(slots=True)
class RunState:
    """A run as far as its events have been applied."""

    started: events.Started | None = None  # of the last life of the coordinator
    ended: events.Ended | None = None  # None: it is in progress, or was killed
    first_at: float | None = None  # of the first event, in Unix seconds
    last_at: float | None = None  # of the last event
    trains: bool = False  # a lease has been done since the start, or since it was resumed
    seconds: float = 0.0  # of training
    rows: Counter = field(default_factory=Counter)
    train_rows: int = 0  # of the training set; 0: not known yet
    history: list[events.Evaluation] = field(default_factory=list)
    best: events.Evaluation | None = None
    workers: list[ObservedWorker] = field(default_factory=list)  # in the order in which they joined
    notices: list[Notice] = field(default_factory=list)  # the last MAX_NOTICES
    occurrences: dict[str, list[float]] = field(default_factory=dict)  # of TIMED: training seconds
    checkpoint_at: float | None = None  # training seconds of the state that the last one has
    tested: events.Tested | None = None  # the result of the kept model on the test rows
    baselines: dict[str, events.BaselineMeasured] = field(default_factory=dict)  # by set
    evaluates: events.EvaluationBegins | None = None  # an evaluation has begun and not ended
    saves: bool = False  # a checkpoint is being written
    damaged: int = 0  # events of workers that are not known, and lines that are not events

    @property
    def rehearsed(self) -> str | None:
        """The name of the simulated server, if the run is rehearsed."""
        return self.started.rehearsed or None if self.started is not None else None

    @property
    def epochs(self) -> float | None:
        """Passes over the training set; None while its size is not known."""
        return self.rows.value / self.train_rows if self.train_rows else None

    @property
    def present(self) -> list[ObservedWorker]:
        return [worker for worker in self.workers if worker.left_at is None]

    @property
    def updates(self) -> int:
        return sum(worker.updates.value for worker in self.workers)

    @property
    def rows_per_second(self) -> float | None:
        """Recent speed; after the end that of the whole run. None before it has trained."""
        if self.ended is None:
            return self.rows.speed(self.seconds)
        return self.rows.value / self.seconds if self.seconds else None

    def share_of(self, worker: ObservedWorker) -> float | None:
        """The part of all updates that a worker has done; None before there are any.

        Updates of workers of a server may be known before those of the server.
        """
        return min(1.0, worker.updates.value / self.updates) if self.updates else None

    def speed_of(self, worker: ObservedWorker) -> float | None:
        """Recent rows per second of a worker; after the end of the run, or its own, its mean.

        That of a worker of a server is of the time until its last figures.
        """
        ends = [end for end in (worker.left_at, worker.measured_at) if end is not None]
        until = min(ends, default=self.seconds)
        if self.ended is None and worker.left_at is None:
            return worker.rows.speed(until)
        elapsed = until - worker.joined_at
        return worker.rows.value / elapsed if elapsed > 0 else None

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

    def patience_left(self) -> float | None:
        """Epochs without a better model after which the run ends; None if it does not."""
        started = self.started
        if started is None or not started.patience or not self.history or self.ended is not None:
            return None
        since = self.history[-1].rows - (self.best.rows if self.best else 0)
        return max(0.0, started.patience - since / started.train_rows)

    def apply(self, event: events.Event) -> None:
        """Apply the next event; one that names an unknown worker is counted and ignored."""
        try:
            self._apply(event)
        except KeyError:
            self.damaged += 1
            return
        self.last_at = event.at
        if self.first_at is None:
            self.first_at = self.last_at

    def _apply(self, event: events.Event) -> None:
        match event:
            case events.Started():
                self._begin(event)
            case events.Resumed():
                self._roll_back(event)
            case events.Ended():
                self.ended = event
                self.evaluates, self.saves = None, False
                if event.seconds is not None:
                    self.seconds = event.seconds
            case events.LeaseDone() | events.LeasesDone():
                self._worker(event.worker).credit(event)
                self.trains = True
                self.seconds = max(self.seconds, event.seconds)
                self.rows.add(event.row_count, event.seconds)
            case events.Evaluation():
                self._evaluated(event)
            case events.EvaluationBegins():
                self.evaluates = event
            case events.Tested():
                self.tested, self.evaluates = event, None
            case events.BaselineMeasured():
                self.baselines[event.set] = event
            case events.CheckpointBegins():
                self.saves = True
            case events.CheckpointWritten():
                self.checkpoint_at = event.seconds
                self.saves = False
            case events.CheckpointFailed() | events.Poisoned():  # the model is not written
                self.saves = False
            case _:
                self._change_worker(event)
        if event.name in TIMED:
            self.occurrences.setdefault(event.name, []).append(self.seconds)
        if event.TEXT:
            self._note(event.at, event.text)

    def _change_worker(self, event: events.Event) -> None:
        match event:
            case events.WorkerJoined(name, runs_on, pid):
                self.workers.append(ObservedWorker(name, runs_on, self.seconds, pid))
            case events.WorkerCompiles(name):
                self._worker(name).state = "compiles"
            case events.WorkerReady(name):
                self._worker(name).become_ready(event.batch_size, self.seconds)
            case events.WorkerParked(name, reason):
                self._worker(name).park(True, reason, self.seconds)
            case events.WorkerUnparked(name):
                self._worker(name).park(False, "", self.seconds)
            case events.WorkersOfServer(name):
                self._worker(name).take_figures(event, self.seconds)
            case events.OutOfMemory(name):
                self._worker(name).resize(event.batch_size, self.seconds)
            case events.WorkerLost(name, reason):
                self._worker(name).leave("lost", reason, self.seconds)
            case events.Goodbye(name) | events.WorkerLeft(worker=name):
                self._worker(name).leave("left", "", self.seconds)

    def _worker(self, name: str) -> ObservedWorker:
        """The last worker of that name; KeyError if there is none."""
        for worker in reversed(self.workers):
            if worker.name == name:
                return worker
        raise KeyError(name)

    def _begin(self, started: events.Started) -> None:
        self.started, self.ended, self.tested = started, None, None
        self.train_rows = started.train_rows
        self.trains, self.evaluates, self.saves = False, None, False
        self._dismiss_workers()
        self.rows.begin(self.seconds)

    def _dismiss_workers(self) -> None:
        """Their coordinator is gone, perhaps without having recorded that they left."""
        for worker in self.workers:
            worker.leave("left", "", self.seconds)

    def _roll_back(self, resumed: events.Resumed) -> None:
        """Work after the checkpoint is repeated, so it is forgotten."""
        rows, seconds = resumed.rows, resumed.seconds
        self._dismiss_workers()
        self.seconds = self.checkpoint_at = seconds
        self.workers = [worker for worker in self.workers if worker.joined_at <= seconds]
        for worker in self.workers:
            worker.roll_back(seconds)
        for kind, moments in self.occurrences.items():
            self.occurrences[kind] = [moment for moment in moments if moment <= seconds]
        # An evaluation with the rows of the checkpoint may have followed it, and is then repeated.
        history, self.history, self.best = self.history[: resumed.evaluations], [], None
        for evaluation in history:
            if evaluation.rows <= rows:
                self._remember(evaluation)
        self.rows.roll_back(seconds)
        self.rows.value = rows
        self.rows.begin(seconds)
        self._note(resumed.at, f"resumed from {resumed.checkpoint}")

    def _evaluated(self, evaluation: events.Evaluation) -> None:
        self._remember(evaluation)
        self.evaluates = None
        self.seconds = max(self.seconds, evaluation.seconds)
        for worker in self.present:
            if (measured := evaluation.utilization.get(worker.name)) is not None:
                worker.utilization.append((evaluation.seconds, measured))

    def _remember(self, evaluation: events.Evaluation) -> None:
        self.history.append(evaluation)
        metric = self.started.metric if self.started else None
        best = math.inf if self.best is None else rank(self.best, metric)
        if rank(evaluation, metric) < best:
            self.best = evaluation

    def _note(self, at: float, text: str) -> None:
        self.notices = [*self.notices[1 - MAX_NOTICES :], Notice(at, text, self.seconds)]


class Condition(NamedTuple):
    """The state of a run, and why or what it waits for.

    The state is "preparing", "waiting", "training", "finished", "stopped", "failed" or "killed?".
    """

    state: str
    reason: str

    @property
    def active(self) -> bool:
        """The run may still train."""
        return self.state in ("waiting", "training")

    @property
    def over(self) -> bool:
        """The run has ended and recorded it; one that was killed may be resumed."""
        return self.state in ("finished", "stopped", "failed")


def condition_of(run: RunState, running: bool | None, crash: str | None = None) -> Condition:
    """The condition of a run whose coordinator is `running`; None: that cannot be seen.

    `crash` names the crash report of the run, if there is one.
    """
    if run.ended is not None:
        status, reason = run.ended.status, run.ended.reason
        state = status if status in ("failed", "stopped") else "finished"
        return Condition(state, reason or REASONS.get(status, status))
    if running is False and crash:
        return Condition("failed", f"a bug; see {crash}")
    if running is False:
        resume = "hogbatch train --resume RUN_DIR continues it"
        advice = "it has no checkpoint" if run.checkpoint_at is None else resume
        return Condition("killed?", f"no process and no result; {advice}")
    if run.first_at is None:
        return Condition("preparing", "no events yet: it reads its data, or ended before training")
    unseen = "" if running else "whether its process runs cannot be seen from this machine"
    if run.trains:
        return Condition("training", unseen)
    compiles = any(worker.state == "compiles" for worker in run.present)
    awaited = " that compile their kernels" if compiles else " to be ready" if run.present else ""
    return Condition("waiting", unseen or f"for workers{awaited}")
