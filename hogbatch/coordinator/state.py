"""The coordinator's mind: messages in, commands out.

This module covers
- which rows go to whom, in leases of how many rows and batches of which size;
- what happens when a worker joins, finishes, fails, falls silent or dies;
- when to look the model through, to evaluate and to save, and when a run is over.

This module does *not* cover
- sockets, clocks, files and processes (see :mod:`hogbatch.coordinator.loop`);
- the size of a batch (see :mod:`hogbatch.policy`).

Phases: waiting → train → drain → inspect → evaluate → train … → finished. In `drain` nothing new
is handed out until the last lease is back. Then nobody writes the model: it is looked through and
copied (`inspect`), and evaluated. One that is not finite goes back to the last good copy instead.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from hogbatch.coordinator.account import Account
from hogbatch.coordinator.commands import (
    Command,
    Finish,
    Keep,
    Kill,
    Record,
    Report,
    Revoke,
    Send,
    ShowMean,
    Snapshot,
    Status,
)
from hogbatch.coordinator.epochs import Epochs
from hogbatch.coordinator.leases import LEASES_IN_FLIGHT, Leases
from hogbatch.coordinator.ledger import Ledger
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.progress import Progress
from hogbatch.coordinator.recovery import Recovery, too_many_skipped
from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.saved import Saved
from hogbatch.coordinator.saving import restore, save
from hogbatch.coordinator.worker import Profile, Worker
from hogbatch.errors import PolicyError
from hogbatch.policy.base import BatchPolicy
from hogbatch.telemetry.records import Faults, RunTotals
from hogbatch.wire.messages import (
    Done,
    Failed,
    Goodbye,
    Heartbeat,
    Hello,
    Ready,
    Refused,
    Stop,
    ToCoordinator,
)

LOOK_S = 0.05  # between two looks at all workers
AWAKE_S = 2.0  # a longer pause between two ticks means that this process was stopped
PATIENCE_S = 4.0  # with leases at hand, once a run is interrupted


@dataclass(slots=True)
class Coordinator:
    """Runs one training. Change it through its public methods only; each returns commands."""

    plan: Plan
    policy: BatchPolicy
    roster: Roster = field(init=False)
    phase: Literal["waiting", "train", "drain", "inspect", "evaluate", "finished"] = "waiting"
    progress: Progress = field(init=False)
    recovery: Recovery = field(init=False)
    epochs: Epochs = field(init=False)
    leases: Leases = field(init=False)
    ending: Status | None = None  # set once the end is decided
    account: Account = field(init=False)
    _alone_since: float | None = None
    _interrupted_at: float | None = None
    _ticked: float | None = None
    _look_at: float = -math.inf
    _policy_failure: str = ""

    def __post_init__(self) -> None:
        self.progress = Progress(self.plan)
        self.recovery = Recovery(self.plan.checkpoint_seconds)
        self.roster = Roster(self.plan.beta)
        self.epochs = Epochs(self.plan.train_rows)
        self.leases = Leases(self.plan, self.roster, self.epochs, self.recovery)
        self.account = Account(
            self.epochs, self.leases, self.progress, self.recovery, self._next_size
        )

    @classmethod
    def resumed(cls, plan: Plan, policy: BatchPolicy, saved: Saved) -> "Coordinator":
        """One that goes on where `saved` was taken, with whatever workers come."""
        state = cls(plan, policy)
        restore(saved, *state._parts())
        if plan.ending.epochs is not None and saved.epoch >= plan.ending.epochs:
            state.ending = "finished"
        return state

    @property
    def workers(self) -> dict[str, Worker]:
        """Everyone attached, by key."""
        return self.roster.attached

    @property
    def epoch(self) -> int:
        """The number of the epoch at hand, from 0."""
        return self.epochs.number

    # Events ---------------------------------------------------------------------------------

    def begin(self, now: float) -> list[Command]:
        """Start to wait for workers, and have the first epoch shuffled and the model copied."""
        self._alone_since = now
        return [*self.epochs.begin(), self._snapshot(with_checkpoint=False)]

    def order_ready(self, epoch: int, without: int, now: float) -> list[Command]:
        """The order of `epoch` lies in shared memory, `without` rows of those quarantined."""
        self.epochs.order_ready(epoch, without)
        return self._advance(now)

    def snapshot_taken(self, bad: str, now: float) -> list[Command]:
        """The model is looked through and copied; or it is not finite, at `bad`, and is not."""
        commands = self.recovery.end_snapshot(bad)
        if self.phase == "inspect":
            commands += self._roll_back(now) if bad else self._begin_evaluation(now)
        elif bad and self.phase == "train":
            self.phase = "drain"
        return commands + self._advance(now)

    def checkpoint_written(self, failure: str, now: float) -> list[Command]:
        """A checkpoint is on disk, or there was a `failure`."""
        self.recovery.end_checkpoint(bool(failure), now)
        if not failure:
            return []
        self.account.faults["checkpoints_failed"] += 1
        return [Record("checkpoint_failed", {"reason": failure})]

    def receive(self, key: str, message: ToCoordinator, now: float) -> list[Command]:
        """Take in one message from worker `key`."""
        if isinstance(message, Hello):
            return self._admit(key, message, now)
        worker = self.workers.get(key)
        if worker is None:  # given up for lost: its rows are with another
            return [Send(key, Stop())]
        worker.last_seen = now
        match message:
            case Ready(profile):
                return self._make_ready(worker, profile, now)
            case Done():
                return self._credit(worker, message, now)
            case Heartbeat() if worker.begins_to_compile(message):
                return [Record("worker_compiles", {"worker": worker.name})]
            case Heartbeat():
                return []
            case Failed(reason):
                return self._fail(worker, reason, now)
            case Goodbye():
                leaving: list[Command] = [Record("goodbye", {"worker": worker.name})]
                leaving.append(Revoke(worker.number))
                return leaving + self._remove(worker, now, died=False)

    def lose(self, key: str, reason: str, now: float, died: bool = True) -> list[Command]:
        """Worker `key` is gone or useless; its rows go to whoever is idle.

        Its process, if there still is one, is ended before they do. It may have `died` of them.
        """
        worker = self.workers.get(key)
        if worker is None:
            return []
        return [
            *self._lost(worker, reason),
            Kill(worker.pid),
            *self._remove(worker, now, died),
        ]

    def _fail(self, worker: Worker, reason: str, now: float) -> list[Command]:
        """A worker says that it ends, and will say more in its log; a device is no row's fault."""
        died = worker.device == "cpu"
        return [*self._lost(worker, reason), *self._remove(worker, now, died)]

    def _lost(self, worker: Worker, reason: str) -> list[Command]:
        self.account.faults["workers_lost"] += 1
        lost = Record("worker_lost", {"worker": worker.name, "reason": reason})
        return [lost, Revoke(worker.number)]

    def tick(self, now: float) -> list[Command]:
        """Let time pass; call it a few times a second."""
        if self._ticked is not None and now - self._ticked > AWAKE_S:
            self._sleep(now - self._ticked, now)
        self._ticked = now
        if now < self._look_at:
            return self._advance(now, [])
        self._look_at = now + LOOK_S
        commands: list[Command] = []
        for worker, reason in self.roster.given_up(now):
            commands += self.lose(worker.key, reason, now)
        if self._interrupted_at is not None and now - self._interrupted_at > PATIENCE_S:
            commands += self._cut_short(now)
        waited = now - self._alone_since if self._alone_since is not None else 0.0
        if waited > self.plan.ending.wait_for_workers and self.phase != "finished":
            return commands + self.abandon(f"no worker for {waited:.0f} s", now)
        return commands + self._advance(now)

    def _sleep(self, seconds: float, now: float) -> None:
        """Leave out time in which this process was stopped and could hear nobody."""
        self.progress.clock.skip(seconds, now)
        if self._alone_since is not None:
            self._alone_since += seconds
        self.roster.forgive(seconds)

    def interrupt(self, now: float) -> list[Command]:
        """End the run after the leases at hand, without another evaluation."""
        if self.phase == "finished":
            return []
        self.ending = self.ending or "stopped"
        if self._interrupted_at is None:
            self._interrupted_at = now
        if self.phase == "waiting" or not self.workers:  # no lease is at hand
            return self._stop_here(now)
        return self._advance(now)

    def abandon(self, reason: str, now: float) -> list[Command]:
        """End the run at once as failed; the best model so far, or else the last, is kept."""
        return [*self._keep_last(), *self._finish("failed", reason, now)]

    # Membership -----------------------------------------------------------------------------

    def _admit(self, key: str, hello: Hello, now: float) -> list[Command]:
        if key in self.workers:
            again = self.lose(key, "said Hello twice", now, died=False)
            return again + self._admit(key, hello, now)
        reason = self.plan.identity.objection(hello) or self.roster.full()
        if reason or self.phase == "finished":
            return [Send(key, Refused(reason) if reason else Stop())]
        worker = self.roster.admit(key, hello, now)
        self._alone_since = None
        run = self.plan.identity.run
        beat = worker.beat_seconds
        welcome = self.plan.training.welcome(run, worker.number, worker.name, beat)
        joined = {"worker": worker.name, "runs_on": hello.name, "pid": worker.pid}
        return [Send(key, welcome), Record("worker_joined", joined)]

    def _make_ready(self, worker: Worker, profile: Profile, now: float) -> list[Command]:
        if objection := worker.limit(self.plan.limits, profile):
            return self.lose(worker.key, objection, now)
        self.roster.make_ready(worker, now)
        worker.joined_at = self.progress.seconds(now)
        worker.head_start = self.roster.head_start(worker)
        size = self.roster.inherited_size(worker.device)
        if size is None:
            size = self._ask_policy(worker, first=True)
        worker.resize(size, worker.joined_at)
        ready = {"worker": worker.name, "limits": worker.limits, "batch_size": worker.batch_size}
        return [Record("worker_ready", ready), *self._advance(now, [worker])]

    def _remove(self, worker: Worker, now: float, died: bool) -> list[Command]:
        commands = self.account.take_back(worker, died)
        self.roster.remove(worker, self.progress.seconds(now))
        if not self.workers:
            self._alone_since = now
        return commands + self._advance(now)

    # Work -----------------------------------------------------------------------------------

    def _credit(self, worker: Worker, done: Done, now: float) -> list[Command]:
        lease = worker.leases.pop(done.lease, None)
        if lease is None:  # said twice, or never handed out
            self.account.faults["messages_refused"] += 1
            return []
        if lie := lease.objection(done):
            worker.leases[lease.number] = lease
            return self.lose(worker.key, lie, now, died=False)
        records = self.account.take_in(worker, lease, done, now)
        whole = done.rows == lease.stop - lease.start  # or others have room for the rest
        return [*records, *self._advance(now, [worker] if whole else None)]

    def _next_size(self, worker: Worker) -> int:
        return self._ask_policy(worker, first=False)

    def _ask_policy(self, worker: Worker, *, first: bool) -> int:
        """The rows of the worker's batches; a policy that fails ends the run at `_advance`."""
        try:
            if first:
                return self.policy.first_size(worker.view())
            return self.policy.next_size(worker.view(), self.roster.others(worker))
        except PolicyError as error:
            self._policy_failure = str(error)
            return worker.batch_size or worker.limits[0]

    def _advance(self, now: float, to: Sequence[Worker] | None = None) -> list[Command]:
        """Do whatever can be done now; `to` are the workers that may have new room, None: all."""
        if self._policy_failure and self.phase != "finished":
            kept = self._keep_last()
            return kept + self._finish("failed", self._policy_failure, now, by_policy=True)
        commands: list[Command] = []
        before = self.phase, self.epoch
        waiting = self.phase == "waiting" and self.epochs.ready
        if waiting and self.roster.enough_ready(self.plan, now):
            self.phase = "train"
            self.progress.clock.start(now)
            self.recovery.start(now)
            commands += self.epochs.prepare_next()
        if self.phase in ("train", "drain") and self.epochs.rows.finished:
            commands += self._end_epoch()
        if self.phase == "train" and self._pause_is_due(now):
            self.phase = "drain"
        if self.phase == "train" and self._checkpoint_is_due(now):
            commands.append(self._snapshot(with_checkpoint=True, now=now))
        if self.phase == "drain" and not self.epochs.rows.held and not self.recovery.copying:
            self.phase = "inspect"
            self.progress.begin_evaluation(now)
            commands.append(self._snapshot(with_checkpoint=self._checkpoint_is_due(now), now=now))
        if self.phase == "evaluate" and self.leases.test_rows.finished:
            commands += self._end_evaluation(now)
        if (self.phase, self.epoch) != before:
            to = None
        return [*commands, *self.leases.hand_out(self.phase, now, to)]

    def _end_epoch(self) -> list[Command]:
        commands = self.epochs.end()
        self.progress.end_epoch()
        if self.epochs.rows.finished:  # nothing is left of the training set
            self.ending = self.ending or "finished"
        if self.plan.ending.epochs is not None and self.epoch >= self.plan.ending.epochs:
            self.ending = self.ending or "finished"
        return commands if self.ending else commands + self.epochs.prepare_next()

    # Evaluation and the end -----------------------------------------------------------------

    def _pause_is_due(self, now: float) -> bool:
        if self.progress.time_is_up(now):
            self.ending = self.ending or "time"
        return self.ending is not None or self.progress.evaluation_is_due(now)

    def _checkpoint_is_due(self, now: float) -> bool:
        """Whether it is time for a checkpoint; never before a row was trained on."""
        return self.progress.rows > 0 and self.recovery.is_due(now)

    def _snapshot(self, with_checkpoint: bool, now: float = 0.0) -> Snapshot:
        self.recovery.begin_snapshot(with_checkpoint, self.progress.rows)
        return Snapshot(self.saved(now) if with_checkpoint else None)

    def _roll_back(self, now: float) -> list[Command]:
        """Go on from the last good snapshot, more carefully; nobody writes."""
        where = self.recovery.poisoned
        commands = self.recovery.roll_back(self.progress.rows)
        self.account.faults["roll_backs"] += 1
        self.progress.roll_back()
        if reason := self.recovery.diverged(where):
            return commands + self._diverge(reason, now)
        self.phase = "train"
        self.progress.clock.start(now)
        return commands

    def _begin_evaluation(self, now: float) -> list[Command]:
        if self.ending == "stopped":
            return self._stop_here(now)
        self.phase = "evaluate"
        self.leases.test_rows = Ledger(self.plan.test_rows)
        return [ShowMean(True)] * self.plan.ending.average

    def _stop_here(self, now: float) -> list[Command]:
        """End an interrupted run while nobody writes the model."""
        return [*self._keep_last(), *self._finish("stopped", "interrupted", now)]

    def _cut_short(self, now: float) -> list[Command]:
        """End an interrupted run without those who are still at work."""
        commands: list[Command] = []
        for worker in [worker for worker in self.workers.values() if worker.leases]:
            still = "still at work some time after the interrupt"
            commands += self.lose(worker.key, still, now)
        return commands + (self._stop_here(now) if self.phase == "evaluate" else [])

    def _keep_last(self) -> list[Command]:
        """Keep the model as it stands, if that is the one to keep and anything was learnt."""
        wanted = self.progress.wants_current_model and self.progress.rows > 0
        return [Keep(None)] if wanted and self.phase != "finished" else []

    def _end_evaluation(self, now: float) -> list[Command]:
        trained = self.progress.trained
        evaluation = self.progress.end_evaluation(now)
        self.phase = "train"
        for worker in self.workers.values():
            worker.update_trace.add(evaluation.seconds, worker.updates)
        if self.progress.target_is_met(evaluation):
            self.ending = "target"
        commands = self.recovery.warn(trained, self.plan.learning_rate.base)
        commands.append(Report(evaluation))
        best = self.progress.is_best(evaluation)
        if self.progress.has_stalled():
            self.ending = self.ending or "finished"
        wanted = self.ending is not None and self.progress.wants_current_model
        if self.progress.rows > 0 and (best or wanted):
            commands.append(Keep(evaluation))
        commands += [ShowMean(False)] * self.plan.ending.average
        if reason := too_many_skipped(trained):
            return commands + self._diverge(reason, now)
        if self.ending:
            why = self.progress.why_finished() if self.ending == "finished" else ""
            return commands + self._finish(self.ending, why, now)
        self.progress.clock.start(now)
        return commands

    def _diverge(self, reason: str, now: float) -> list[Command]:
        return self._finish("failed", f"training has diverged: {reason}", now, diverged=True)

    def _finish(
        self,
        status: Status,
        reason: str,
        now: float,
        *,
        diverged: bool = False,
        by_policy: bool = False,
    ) -> list[Command]:
        if self.phase == "finished":
            return []
        shown = self.phase == "evaluate" and self.plan.ending.average
        self.progress.clock.pause(now)
        self.phase = "finished"
        self.ending = status
        stops = [Send(key, Stop()) for key in self.workers]
        return [*[ShowMean(False)] * shown, *stops, Finish(status, reason, diverged, by_policy)]

    # Account --------------------------------------------------------------------------------

    def standing(self, now: float) -> RunTotals:
        """Where the run stands."""
        seconds = self.progress.seconds(now)
        return RunTotals(
            seconds=seconds,
            epochs=self.progress.epochs,
            rows=self.progress.rows,
            workers=self.roster.records(seconds),
            faults=Faults(**self.account.faults),
        )

    def saved(self, now: float) -> Saved:
        """All it takes to go on from here."""
        return save(*self._parts(), now)

    def _parts(self) -> tuple[Epochs, Progress, Recovery, Leases, Roster, Counter[str]]:
        faults = self.account.faults
        return self.epochs, self.progress, self.recovery, self.leases, self.roster, faults

    def validate(self) -> None:
        """Check what must always hold."""
        for ledger, task in ((self.epochs.rows, "train"), (self.leases.test_rows, "evaluate")):
            ledger.validate()
            leases = [lease for worker in self.workers.values() for lease in worker.leases.values()]
            numbers = [lease.number for lease in leases if lease.task == task]
            assert sorted(numbers) == sorted(ledger.held), (numbers, ledger.held)
        assert all(len(w.leases) <= LEASES_IN_FLIGHT for w in self.workers.values())
