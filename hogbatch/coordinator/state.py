"""The coordinator's state: events in, commands out.

:class:`Coordinator` makes all decisions of a run. It moves the run through its phases and leaves
details to its parts: `roster` (the workers), `leases` (which rows for which worker),
`accounting` (leases that come back), `decisions` (asks the policy), `evaluation`,
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
drain     training pauses: no training lease  → inspect: every training lease is back, no
          is handed out                       snapshot is being taken, and servers hold all rows
                                              that are to be evaluated
inspect   no worker writes: the model is      → evaluate: it is finite. → train: it was not, and is
          checked for NaN and Inf and copied  rolled back. → finished: it was rolled back too often.
                                              → test: the user has interrupted the run
evaluate  the model is finite: validation     all these rows are done. → train: the run continues.
          rows are handed out                 → test: its end is decided. → finished: it has
                                              diverged. → drain: no server is left that holds some
                                              of them
test      the end is decided: test rows are   → finished: all these rows are done, or cannot be
          handed out, to evaluate the kept
          model
finished  Finish was commanded, as above or   never
          from any phase after a failure or
          an interrupt
========  ==================================  ====================================================
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from hogbatch.coordinator.commands import (
    Command,
    Finish,
    Keep,
    Record,
    ShowKept,
    Snapshot,
)
from hogbatch.coordinator.evaluation import Evaluator
from hogbatch.coordinator.leases import EVALUATING
from hogbatch.coordinator.merge_pace import ONE_MODEL
from hogbatch.coordinator.merges import Merges
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.progress import LossSums, Metrics
from hogbatch.coordinator.saved_state import SavedState, restore, save
from hogbatch.coordinator.worker import Worker
from hogbatch.coordinator.workforce import TICK_S, Workforce
from hogbatch.events.event import CheckpointBegins, CheckpointFailed, WorkersOfServer
from hogbatch.policy.base import BatchPolicy
from hogbatch.wire.messages import FromServer, Loaded, Ready, ServerWorkers

MIN_TICK_S = 0.001  # between two calls of `tick`


@dataclass(slots=True)
class Coordinator(Workforce):
    """The state of one training run. Every public method takes an event and returns commands."""

    evaluator: Evaluator = field(init=False)
    merges: Merges = field(init=False)

    def __post_init__(self) -> None:
        Workforce.__post_init__(self)
        parts = self.progress, self.recovery, self.leases, self.ending
        self.evaluator = Evaluator(self.plan, *parts)
        merging = self.plan.merging or partial(Merges, ONE_MODEL)
        self.merges = merging(self.roster, self.epochs)

    @classmethod
    def resumed(cls, plan: Plan, policy: BatchPolicy, saved: SavedState) -> "Coordinator":
        """A coordinator that continues where `saved` was taken, with new workers."""
        state = cls(plan, policy)
        restore(state, saved)
        if plan.stopping.epochs is not None and saved.epoch >= plan.stopping.epochs:
            state.ending.decide("finished")
        return state

    # Events ---------------------------------------------------------------------------------

    def begin(self, now: float) -> list[Command]:
        """Start waiting for workers; request the first row order and a copy of the model."""
        waiting = Workforce.begin(self, now)
        return [*waiting, *self.epochs.begin(), *self._snapshot(with_checkpoint=False)]

    def snapshot_taken(self, not_finite_at: str | None, now: float) -> list[Command]:
        """The model is checked, and copied unless the parameter `not_finite_at` is not finite."""
        commands = self.recovery.end_snapshot(not_finite_at)
        if self.phase == "inspect":
            self.merges.copied = True
            commands += self._roll_back(now) if not_finite_at else self._begin_evaluation(now)
        elif not_finite_at and self.phase == "train":
            self.phase = "drain"
        return commands + self._advance(now)

    def snapshot_failed(self, now: float) -> list[Command]:
        """The model could not be copied, because no server that has it can be reached."""
        self.recovery.copying = self.recovery.writing = False
        if self.phase == "inspect":
            self.phase = "drain"
        return self._advance(now)

    def checkpoint_written(self, failure: str | None, now: float) -> list[Command]:
        """A checkpoint is on disk, or writing it has failed with the reason `failure`."""
        self.recovery.end_checkpoint(failure is not None, now)
        if failure is None:
            return []
        self.accounting.faults["checkpoints_failed"] += 1
        return [Record(CheckpointFailed(failure))]

    def model_written(self, key: str, failure: str | None, now: float) -> list[Command]:
        """The model is in the memory of server `key`, or writing it has failed."""
        if failure is None:
            return self.merges.written(key)
        if self.merges.not_written(key):
            return self.lose(key, failure, now, died=False)
        return self._advance(now, [])

    def _check_deadlines(self, now: float) -> list[Command]:
        commands: list[Command] = []
        for key in self.merges.late(now):
            commands += self.lose(key, "did not finish its part of a merge in time", now)
        if self.ending.interrupt_expired(now) and self.phase == "test":
            commands += self._end_run(now)
        elif self.ending.interrupt_expired(now):
            for worker in [worker for worker in self.workers.values() if worker.leases]:
                commands += self.lose(worker.key, "still busy some time after the interrupt", now)
            waits = self.phase == "drain" and not self.leases.can_evaluate
            if waits or self.phase == "evaluate":
                commands += self._stop_here(now)
        self.ending.set_missing_parts(self._missing_parts(now), now)
        return commands

    def until_tick(self, now: float) -> float:
        """Seconds until `tick` is to be called, if nothing else happens before."""
        if self.phase not in ("train", "drain"):
            return TICK_S
        due = self.merges.due_at(draining=self.phase == "drain") - now
        return min(TICK_S, max(due, MIN_TICK_S))

    def interrupt(self, now: float, reason: str = "interrupted") -> list[Command]:
        """End the run when the leases in flight are back and the test rows are evaluated."""
        if self.phase == "finished":
            return []
        self.ending.interrupt(now, reason)
        if self.phase == "waiting" or not self.workers:  # no lease is in flight
            return self._stop_here(now)
        return self._advance(now)

    def abandon(self, reason: str, now: float) -> list[Command]:
        """End the run now, as failed; the best model so far is kept, or else the last one.

        If only the test rows are left, it ends without their result, as was decided before.
        """
        return self._end_now(Finish("failed", reason), now)

    def _advance(self, now: float, to: Sequence[Worker] | None = None) -> list[Command]:
        """Make all transitions between phases that are possible now, then hand out leases.

        `to` are the workers that may have room for a lease, None for all. Each step may enable
        those after it in the same call, so their order matters:

        1. A policy that failed ends the run before another lease is handed out.
        2. Training starts.
        3. The epoch ends. This may decide the end of the run or make an evaluation due, so it
           comes before step 4.
        4. Training pauses, but not for an evaluation of rows that no server holds. This comes
           before step 6: a checkpoint that is due together with an evaluation waits for step 7,
           where no worker writes and the copy is exact.
        5. Several servers merge their models, which training waits for only if it pauses or if no
           rows are left. A new server gets the model; if training pauses, only if it is needed.
        6. A checkpoint is taken in the background while training continues.
        7. Once the last training lease is back and merged, the model is inspected.
        8. All validation or test rows are evaluated, immediately if there are none. If metrics
           are computed from their scores, the evaluation ends with `measured`, else now.
        9. The test rows cannot be evaluated.
        10. Leases of the phase and epoch reached by now are handed out.
        """
        if self.decisions.failure and self.phase not in ("test", "finished"):
            end = Finish("failed", self.decisions.failure, by_policy=True)
            return self._keep_last() + self._finish(end, now)
        commands: list[Command] = []
        before = self.phase, self.epochs.number
        waiting = self.phase == "waiting" and self.epochs.ready
        if waiting and self.roster.enough_ready(self.plan, now):
            commands += self._start_training(now)
        if self.phase in ("train", "drain") and self.epochs.rows.finished:
            commands += self._end_epoch()
        if self.phase == "train" and (self._must_evaluate(now) or self.merges.poisoned):
            self.phase = "drain"
        if self.phase in ("waiting", "train", "drain"):
            draining = self.phase == "drain"
            may_load = not draining or not self.leases.can_evaluate
            commands += self.merges.advance(now, draining=draining, may_load=may_load)
        if self.phase == "train" and self._checkpoint_is_due(now):
            commands += self._snapshot(with_checkpoint=True, now=now)
        if self.phase == "drain" and self._nothing_in_flight:
            self.phase = "inspect"
            self.progress.begin_evaluation(now)
            commands += self._snapshot(with_checkpoint=self._checkpoint_is_due(now), now=now)
        evaluated = self.phase in EVALUATING and self.leases.evaluated.finished
        if evaluated and not self.evaluator.measuring:
            commands += self.evaluator.measure() or self._end_evaluation({}, now)
        elif self.phase == "evaluate" and self.leases.evaluation_is_stuck:
            self.phase = "drain"
            commands += self.evaluator.show_mean(False)
        if self.phase == "test" and self.leases.evaluation_is_stuck:
            commands += self._end_run(now)
        if (self.phase, self.epochs.number) != before:
            to = None
        return [*commands, *self.leases.hand_out(self.phase, now, to)]

    def _must_evaluate(self, now: float) -> bool:
        """Whether training must pause; while servers are missing, only if the run ends."""
        due = self.evaluator.is_due(now)
        return due and (self.ending.status is not None or self.leases.can_evaluate)

    @property
    def _nothing_in_flight(self) -> bool:
        """Whether every training lease is back and merged, no snapshot is being taken, and servers
        hold all rows of the evaluation that follows, if one does.
        """
        if self.epochs.rows.held or self.recovery.copying:
            return False
        if self.merges.poisoned:
            return True
        no_evaluation = self.ending.status == "stopped" or self.recovery.not_finite_at is not None
        return self.merges.settled and (no_evaluation or self.leases.can_evaluate)

    def _start_training(self, now: float) -> list[Command]:
        self.phase = "train"
        self._start_clock(now)
        self.recovery.start(now)
        return self.epochs.prepare_next()

    def _start_clock(self, now: float) -> None:
        """Training begins or goes on; all servers have the same model."""
        self.progress.clock.run(now)
        self.merges.pace.train(now)

    def _end_epoch(self) -> list[Command]:
        commands = self.epochs.end()
        self.progress.epoch_ended = True
        self.ending.check_epochs(self.epochs)
        return commands if self.ending.status else commands + self.epochs.prepare_next()

    # Servers --------------------------------------------------------------------------------

    def _make_ready(self, worker: Worker, ready: Ready, now: float) -> list[Command]:
        if self.merges.wait_for_model(worker, ready):
            return self._advance(now, [])
        return self._prepare(worker, ready, now)

    def _from_server(
        self, worker: Worker, message: FromServer | ServerWorkers, now: float
    ) -> list[Command]:
        if worker.device != "server":
            return self._refuse_message()
        if isinstance(message, ServerWorkers):
            told = WorkersOfServer(worker.name, list(message.workers), message.others)
            return [Record(told)]
        if isinstance(message, Loaded):
            if (loaded := self.merges.loaded(worker.key)) is None:
                return []
            ready, commands = loaded
            return commands + self._prepare(worker, ready, now)
        commands = self.merges.receive(worker, message, now)
        for key, reason in self.merges.unusable():
            commands += self.lose(key, reason, now, died=False)
        return commands + self._advance(now)

    def _missing_parts(self, now: float) -> Collection[int]:
        """Parts of divided data that are needed now and that no attached server holds."""
        if self.phase in ("waiting", "finished") or not self.plan.parts_of("train"):
            return ()
        missing = self.leases.missing_parts(self.phase)
        if self.phase == "train" and self.evaluator.is_due(now):
            missing += self.leases.missing_parts("drain")
        return missing

    def _removed(self, worker: Worker, returned: Sequence[Command], now: float) -> list[Command]:
        commands = self.merges.removed(worker.key, now)
        if not self.merges.model_is_lost or self.finished:
            return commands
        why = worker.lost_because.partition("\n")[0]
        reason = f"all servers that had the model are lost ({why})"
        copied = self._keep_last() if self.recovery.copied_rows else []
        end = Finish("failed", reason, model_lost=True)
        return [*commands, *copied, *self._finish(end, now)]

    # Model ----------------------------------------------------------------------------------

    def _checkpoint_is_due(self, now: float) -> bool:
        """Whether it is time for a checkpoint; never before the model contains any row.

        On several servers, the first one is due then, since the model is lost with them.
        """
        rows = self.progress.rows - self.epochs.rows.unmerged_rows
        at_once = self.plan.merging is not None
        applied = self.merges.step != "apply"  # the models contain all rows that are acknowledged
        return rows > 0 and applied and self.recovery.is_due(now, at_once)

    def _snapshot(self, with_checkpoint: bool, now: float = 0.0) -> list[Command]:
        with_checkpoint = with_checkpoint and math.isfinite(self.recovery.every)
        self.recovery.begin_snapshot(with_checkpoint, self.progress.rows)
        if not with_checkpoint:
            return [Snapshot(None)]
        saved = save(self, now)
        begins = CheckpointBegins(saved.epoch, saved.rows, saved.seconds)
        return [Record(begins), Snapshot(saved)]

    def _roll_back(self, now: float) -> list[Command]:
        """Continue from the last good snapshot with half the learning rate; no worker writes."""
        where = self.recovery.not_finite_at
        commands = self.recovery.roll_back(self.progress.rows)
        self.merges.rolled_back()
        self.accounting.faults["roll_backs"] += 1
        self.progress.trained = LossSums()
        if reason := self.recovery.diverged(where):
            return commands + self._diverge(reason, now)
        self.phase = "train"
        self._start_clock(now)
        return commands

    def _begin_evaluation(self, now: float) -> list[Command]:
        if self.ending.status == "stopped":
            return [*self._keep_last(), *self._begin_test(now)]
        self.phase = "evaluate"
        return self.evaluator.begin()

    def measured(self, metrics: Metrics, now: float) -> list[Command]:
        """Metrics of the rows that were evaluated are known."""
        self.evaluator.measuring = False
        if self.phase not in EVALUATING:
            return []
        return self._end_evaluation(metrics, now) + self._advance(now)

    def _end_evaluation(self, metrics: Metrics, now: float) -> list[Command]:
        if self.phase == "test":
            return [Record(self.progress.test_result(metrics)), *self._end_run(now)]
        self.phase = "train"
        commands, diverged = self.evaluator.end(metrics, now)
        if diverged:
            return commands + self._diverge(diverged, now)
        if self.ending.status:
            return commands + self._begin_test(now)
        self._start_clock(now)
        return commands

    def _begin_test(self, now: float) -> list[Command]:
        """Evaluate the kept model on the test rows, if there are both; else end the run."""
        if not self.plan.test_rows or not self.progress.rows:
            return self._end_run(now)
        self.phase = "test"
        return self.evaluator.begin_test(now)

    # End ------------------------------------------------------------------------------------

    def _end_run(self, now: float) -> list[Command]:
        status = self.ending.status
        assert status is not None, "the end was decided"
        reason = self.ending.reason if status in ("stopped", "failed") else None
        reason = self.progress.why_finished() if status == "finished" else reason
        return self._finish(Finish(status, reason), now)

    def _stop_here(self, now: float) -> list[Command]:
        """End an interrupted run now, while no worker writes the model."""
        return self._end_now(Finish("stopped", self.ending.reason), now)

    def _end_now(self, end: Finish, now: float) -> list[Command]:
        if self.phase == "test":
            return self._end_run(now)
        return [*self._keep_last(), *self._finish(end, now)]

    def _keep_last(self) -> list[Command]:
        """Keep the current model, if it is the one to keep and was trained on at least one row."""
        wanted = self.progress.wants_current_model and self.progress.rows > 0
        return [Keep(None)] if wanted and self.phase not in ("test", "finished") else []

    def _diverge(self, reason: str, now: float) -> list[Command]:
        end = Finish("failed", f"training has diverged: {reason}", diverged=True)
        return self._finish(end, now)

    def _finish(self, end: Finish, now: float) -> list[Command]:
        restored: list[Command] = []
        if self.phase == "evaluate":
            restored = self.evaluator.show_mean(False)
        elif self.phase == "test":
            restored = [ShowKept(False)]
        return [*restored, *Workforce._finish(self, end, now)]
