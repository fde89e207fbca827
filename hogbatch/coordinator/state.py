"""The coordinator's state: events in, commands out.

:class:`Coordinator` makes all decisions of a run. It moves the run through its phases and leaves
details to its parts: `membership` (workers that join and leave), `leases` (which rows for which
worker), `accounting` (leases that come back), `decisions` (asks the policy), `evaluation`,
`recovery` (snapshots, checkpoints, roll-backs) and `ending` (when to stop). It has no sockets,
clock, files or processes; these are the task of :mod:`hogbatch.coordinator.loop`.

A run is always in one phase:

========  ==================================  ====================================================
phase     entered when                        left when
========  ==================================  ====================================================
waiting   the coordinator starts              → train: the row order is written and enough workers
                                              are ready
train     waiting ends; an evaluation or a    → drain: an evaluation is due, the end of the run is
          roll-back is over                   decided, or a snapshot found the model not finite
drain     training pauses: no training lease  → inspect: every training lease is back and no
          is handed out                       snapshot is being taken
inspect   no worker writes: the model is      → evaluate: it is finite. → train: it was not, and is
          checked for NaN and Inf and copied  rolled back. → finished: it was rolled back too often,
                                              or the user has interrupted the run
evaluate  the model is finite: test rows are  all these rows are done. → train: the run continues.
          handed out, and then, if wanted,    → finished: its end is decided, or it has diverged
          training rows
finished  Finish was commanded, as above or   never
          from any phase after a failure or
          an interrupt
========  ==================================  ====================================================
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from hogbatch.coordinator.accounting import LeaseAccounting
from hogbatch.coordinator.commands import (
    Command,
    Finish,
    Record,
    Send,
    ShowMean,
    Snapshot,
    Status,
)
from hogbatch.coordinator.decisions import Decisions
from hogbatch.coordinator.ending import Ending
from hogbatch.coordinator.epochs import Epochs
from hogbatch.coordinator.evaluation import Evaluator
from hogbatch.coordinator.leases import Leases
from hogbatch.coordinator.membership import Membership
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.progress import Progress
from hogbatch.coordinator.recovery import Recovery
from hogbatch.coordinator.roster import Roster
from hogbatch.coordinator.saved_state import SavedState, StateParts
from hogbatch.coordinator.worker import Worker
from hogbatch.policy.base import BatchPolicy
from hogbatch.telemetry.records import RunTotals
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

CHECK_INTERVAL_S = 0.05  # between two checks of all workers
MAX_TICK_GAP_S = 2.0  # a longer gap between two ticks means that this process was stopped


@dataclass(slots=True)
class Coordinator:
    """The state of one training run. Every public method takes an event and returns commands."""

    plan: Plan
    policy: BatchPolicy
    phase: Literal["waiting", "train", "drain", "inspect", "evaluate", "finished"] = "waiting"
    roster: Roster = field(init=False)
    progress: Progress = field(init=False)
    recovery: Recovery = field(init=False)
    epochs: Epochs = field(init=False)
    leases: Leases = field(init=False)
    ending: Ending = field(init=False)
    evaluator: Evaluator = field(init=False)
    accounting: LeaseAccounting = field(init=False)
    decisions: Decisions = field(init=False)
    membership: Membership = field(init=False)
    _ticked: float | None = None
    _next_check: float = -math.inf

    def __post_init__(self) -> None:
        plan = self.plan
        progress = self.progress = Progress(plan)
        recovery = self.recovery = Recovery(plan.checkpoint_seconds)
        roster = self.roster = Roster(plan.beta)
        epochs = self.epochs = Epochs(plan.train_rows)
        leases = self.leases = Leases(plan, roster, epochs, recovery, progress)
        ending = self.ending = Ending(plan.stopping, progress)
        self.evaluator = Evaluator(plan, progress, recovery, leases, ending)
        accounting = self.accounting = LeaseAccounting(epochs, leases, progress, recovery)
        decisions = self.decisions = Decisions(self.policy, roster)
        self.membership = Membership(plan, roster, progress, ending, accounting, decisions)

    @classmethod
    def resumed(cls, plan: Plan, policy: BatchPolicy, saved: SavedState) -> "Coordinator":
        """A coordinator that continues where `saved` was taken, with new workers."""
        state = cls(plan, policy)
        state._parts().restore(saved)
        if plan.stopping.epochs is not None and saved.epoch >= plan.stopping.epochs:
            state.ending.decide("finished")
        return state

    @property
    def workers(self) -> dict[str, Worker]:
        """All attached workers, by key."""
        return self.roster.attached

    @property
    def epoch(self) -> int:
        """The number of the current epoch, from 0."""
        return self.epochs.number

    # Events ---------------------------------------------------------------------------------

    def begin(self, now: float) -> list[Command]:
        """Start waiting for workers; request the first row order and a copy of the model."""
        self.ending.no_workers(now)
        return [*self.epochs.begin(), *self._snapshot(with_checkpoint=False)]

    def order_ready(self, epoch: int, without: int, now: float) -> list[Command]:
        """The order of `epoch` is written, with the first `without` quarantined rows excluded."""
        self.epochs.order_ready(epoch, without)
        return self._advance(now)

    def snapshot_taken(self, not_finite_at: str, now: float) -> list[Command]:
        """The model is checked, and copied unless the parameter `not_finite_at` is not finite."""
        commands = self.recovery.end_snapshot(not_finite_at)
        if self.phase == "inspect":
            commands += self._roll_back(now) if not_finite_at else self._begin_evaluation(now)
        elif not_finite_at and self.phase == "train":
            self.phase = "drain"
        return commands + self._advance(now)

    def checkpoint_written(self, failure: str, now: float) -> list[Command]:
        """A checkpoint is on disk, or writing it has failed with the reason `failure`."""
        self.recovery.end_checkpoint(bool(failure), now)
        if not failure:
            return []
        self.accounting.faults["checkpoints_failed"] += 1
        return [Record("checkpoint_failed", {"reason": failure})]

    def receive(self, key: str, message: ToCoordinator, now: float) -> list[Command]:
        """Handle one message from worker `key`."""
        if isinstance(message, Hello):
            return self._admit(key, message, now)
        worker = self.workers.get(key)
        if worker is None:  # it counts as lost, and its rows were reassigned
            return [Send(key, Stop())]
        worker.last_seen = now
        match message:
            case Ready() as ready:
                return self._make_ready(worker, ready, now)
            case Done():
                return self._credit(worker, message, now)
            case Heartbeat() if worker.starts_compiling(message):
                return [Record("worker_compiles", {"worker": worker.name})]
            case Heartbeat():
                return []
            case Failed(reason):  # a failing device is not the fault of its rows
                died = worker.device == "cpu"
                lost = self.membership.lose(worker, reason, now, died=died, kill=False)
                return lost + self._advance(now)
            case Goodbye():
                return self.membership.leave(worker, now) + self._advance(now)

    def lose(self, key: str, reason: str, now: float, died: bool = True) -> list[Command]:
        """Worker `key` is gone or unusable; its rows are reassigned.

        Its process is killed before that, if it still exists. `died`: its rows may have killed it.
        """
        worker = self.workers.get(key)
        if worker is None:
            return []
        lost = self.membership.lose(worker, reason, now, died=died, kill=True)
        return lost + self._advance(now)

    def tick(self, now: float) -> list[Command]:
        """Handle the passing of time; called several times a second."""
        if self._ticked is not None and now - self._ticked > MAX_TICK_GAP_S:
            self._skip_stopped_time(now - self._ticked, now)
        self._ticked = now
        if now < self._next_check:
            return self._advance(now, [])
        self._next_check = now + CHECK_INTERVAL_S
        commands: list[Command] = []
        for worker, reason in self.roster.unresponsive(now):
            commands += self.lose(worker.key, reason, now)
        if self.ending.interrupt_expired(now):
            commands += self._lose_busy_workers(now)
        if (reason := self.ending.missing_workers(now)) and self.phase != "finished":
            return commands + self.abandon(reason, now)
        return commands + self._advance(now)

    def interrupt(self, now: float, reason: str = "interrupted") -> list[Command]:
        """End the run when the leases in flight are back, without another evaluation."""
        if self.phase == "finished":
            return []
        self.ending.interrupt(now, reason)
        if self.evaluator.test_is_done:  # only the exact training loss is missing
            return self._end_evaluation(now)
        if self.phase == "waiting" or not self.workers:  # no lease is in flight
            return self._stop_here(now)
        return self._advance(now)

    def abandon(self, reason: str, now: float) -> list[Command]:
        """End the run now, as failed; the best model so far is kept, or else the last one."""
        if self.evaluator.test_is_done:  # only the exact training loss is missing
            self.ending.abandon(reason)
            return self._end_evaluation(now)
        return [*self._keep_last(), *self._finish(Finish("failed", reason), now)]

    # Workers --------------------------------------------------------------------------------

    def _admit(self, key: str, hello: Hello, now: float) -> list[Command]:
        if key in self.workers:
            lost = self.lose(key, "sent Hello twice", now, died=False)
            return lost + self._admit(key, hello, now)
        if reason := self.membership.refusal(hello):
            return [Send(key, Refused(reason))]
        if self.phase == "finished":
            return [Send(key, Stop())]
        return self.membership.admit(key, hello, now)

    def _make_ready(self, worker: Worker, ready: Ready, now: float) -> list[Command]:
        if reason := worker.prepare(ready, self.plan.limits, self.plan.train_rows):
            return self.lose(worker.key, reason, now)
        return [*self.membership.make_ready(worker, now), *self._advance(now, [worker])]

    def _skip_stopped_time(self, seconds: float, now: float) -> None:
        """Leave out time in which this process was stopped and received nothing."""
        self.progress.clock.skip(seconds, now)
        self.ending.skip(seconds)
        self.roster.extend_deadlines(seconds)

    def _credit(self, worker: Worker, done: Done, now: float) -> list[Command]:
        lease = worker.leases.pop(done.lease, None)
        if lease is None:  # reported twice, or never handed out
            self.accounting.faults["messages_refused"] += 1
            return []
        if error := lease.error_in(done):
            worker.leases[lease.number] = lease
            return self.lose(worker.key, error, now, died=False)
        seconds = self.progress.seconds(now)
        records = self.accounting.credit(worker, lease, done, seconds)
        if lease.task == "train" and not done.too_large:
            self.decisions.resize(worker, seconds)
            records += self.decisions.review(seconds)
        # Other workers may take the rest of a lease, or may have waited for a parked one.
        parked = lease.task == "train" and not worker.trains
        alone = done.rows == lease.stop - lease.start and not parked
        return [*records, *self._advance(now, [worker] if alone else None)]

    def _advance(self, now: float, to: Sequence[Worker] | None = None) -> list[Command]:
        """Make all transitions between phases that are possible now, then hand out leases.

        `to` are the workers that may have room for a lease, None for all. Each step may enable
        those after it in the same call, so their order matters:

        1. A policy that failed ends the run before another lease is handed out.
        2. Training starts.
        3. The epoch ends. This may decide the end of the run or make an evaluation due, so it
           comes before step 4.
        4. Training pauses. This comes before step 5: a checkpoint that is due together with an
           evaluation waits for step 6, where no worker writes and the copy is exact.
        5. A checkpoint is taken in the background while training continues.
        6. Once the last training lease is back, the model is inspected.
        7. Evaluation goes on with the training rows, or ends, immediately if there are no rows.
        8. Leases of the phase and epoch reached by now are handed out.
        """
        if self.decisions.failure and self.phase != "finished":
            end = Finish("failed", self.decisions.failure, by_policy=True)
            return self._keep_last() + self._finish(end, now)
        commands: list[Command] = []
        before = self.phase, self.epoch
        waiting = self.phase == "waiting" and self.epochs.ready
        if waiting and self.roster.enough_ready(self.plan, now):
            commands += self._start_training(now)
        if self.phase in ("train", "drain") and self.epochs.rows.finished:
            commands += self._end_epoch()
        if self.phase == "train" and self.evaluator.is_due(now):
            self.phase = "drain"
        if self.phase == "train" and self._checkpoint_is_due(now):
            commands += self._snapshot(with_checkpoint=True, now=now)
        if self.phase == "drain" and not self.epochs.rows.held and not self.recovery.copying:
            self.phase = "inspect"
            self.progress.begin_evaluation(now)
            commands += self._snapshot(with_checkpoint=self._checkpoint_is_due(now), now=now)
        if self.phase == "evaluate" and self.leases.evaluated.finished:
            if more := self.evaluator.go_on(now):
                commands += more
                to = None
            else:
                commands += self._end_evaluation(now)
        if (self.phase, self.epoch) != before:
            to = None
        return [*commands, *self.leases.hand_out(self.phase, now, to)]

    def _start_training(self, now: float) -> list[Command]:
        self.phase = "train"
        self.progress.clock.start(now)
        self.recovery.start(now)
        return self.epochs.prepare_next()

    def _end_epoch(self) -> list[Command]:
        commands = self.epochs.end()
        self.progress.end_epoch()
        self.ending.check_epochs(self.epochs)
        return commands if self.ending.status else commands + self.epochs.prepare_next()

    # Model ----------------------------------------------------------------------------------

    def _checkpoint_is_due(self, now: float) -> bool:
        """Whether it is time for a checkpoint; never before any row was trained on."""
        return self.progress.rows > 0 and self.recovery.is_due(now)

    def _snapshot(self, with_checkpoint: bool, now: float = 0.0) -> list[Command]:
        self.recovery.begin_snapshot(with_checkpoint, self.progress.rows)
        if not with_checkpoint:
            return [Snapshot(None)]
        saved = self.saved(now)
        reached = {"epoch": saved.epoch, "rows": saved.rows, "seconds": saved.seconds}
        return [Record("checkpoint_begins", reached), Snapshot(saved)]

    def _roll_back(self, now: float) -> list[Command]:
        """Continue from the last good snapshot with half the learning rate; no worker writes."""
        where = self.recovery.not_finite_at
        commands = self.recovery.roll_back(self.progress.rows)
        self.accounting.faults["roll_backs"] += 1
        self.progress.roll_back()
        if reason := self.recovery.diverged(where):
            return commands + self._diverge(reason, now)
        self.phase = "train"
        self.progress.clock.start(now)
        return commands

    def _begin_evaluation(self, now: float) -> list[Command]:
        if self.ending.status == "stopped":
            return self._stop_here(now)
        self.phase = "evaluate"
        return self.evaluator.begin()

    def _end_evaluation(self, now: float) -> list[Command]:
        self.phase = "train"
        commands, diverged = self.evaluator.end()
        if diverged:
            return commands + self._diverge(diverged, now)
        if status := self.ending.status:
            return commands + self._finish(Finish(status, self._reason(status)), now)
        self.progress.clock.start(now)
        return commands

    # End ------------------------------------------------------------------------------------

    def _reason(self, status: Status) -> str:
        """Why the run ends after an evaluation."""
        match status:
            case "finished":
                return self.progress.why_finished()
            case "stopped" | "failed":
                return self.ending.reason
        return ""

    def _stop_here(self, now: float) -> list[Command]:
        """End an interrupted run while no worker writes the model."""
        return [*self._keep_last(), *self._finish(Finish("stopped", self.ending.reason), now)]

    def _lose_busy_workers(self, now: float) -> list[Command]:
        """Lose the workers that have not finished their leases in time after an interrupt."""
        commands: list[Command] = []
        for worker in [worker for worker in self.workers.values() if worker.leases]:
            commands += self.lose(worker.key, "still busy some time after the interrupt", now)
        return commands + (self._stop_here(now) if self.phase == "evaluate" else [])

    def _keep_last(self) -> list[Command]:
        return self.ending.keep_last() if self.phase != "finished" else []

    def _diverge(self, reason: str, now: float) -> list[Command]:
        end = Finish("failed", f"training has diverged: {reason}", diverged=True)
        return self._finish(end, now)

    def _finish(self, end: Finish, now: float) -> list[Command]:
        if self.phase == "finished":
            return []
        mean_shown = self.phase == "evaluate" and self.plan.stopping.average
        self.progress.clock.pause(now)
        self.phase = "finished"
        self.ending.status = end.status
        stops = [Send(key, Stop()) for key in self.workers]
        return [*[ShowMean(False)] * mean_shown, *stops, end]

    # Totals ---------------------------------------------------------------------------------

    def totals(self, now: float) -> RunTotals:
        """The totals of the run at `now`."""
        return self._parts().totals(now)

    def saved(self, now: float) -> SavedState:
        """Everything needed to resume from `now`."""
        return self._parts().save(now)

    def _parts(self) -> StateParts:
        faults = self.accounting.faults
        return StateParts(
            self.epochs, self.progress, self.recovery, self.leases, self.roster, faults
        )

    def validate(self) -> None:
        """Assert the invariants."""
        self.leases.validate()
