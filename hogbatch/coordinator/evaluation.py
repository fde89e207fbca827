"""Evaluation of the model: when it is due, how it begins, and what follows from its result."""

from dataclasses import dataclass

from hogbatch.coordinator.commands import Command, Keep, Report, ShowMean
from hogbatch.coordinator.ending import Ending
from hogbatch.coordinator.leases import Leases
from hogbatch.coordinator.ledger import Ledger
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.progress import Progress
from hogbatch.coordinator.recovery import Recovery, too_many_skipped


@dataclass(slots=True)
class Evaluator:
    """Begins and ends evaluations; workers evaluate the test rows in between."""

    plan: Plan
    progress: Progress
    recovery: Recovery
    leases: Leases
    ending: Ending

    def is_due(self, now: float) -> bool:
        """Whether training must pause for an evaluation, including the last one."""
        self.ending.check_time(now)
        pause = self.leases.roster.pause_seconds
        return self.ending.status is not None or self.progress.evaluation_is_due(now, pause)

    def begin(self) -> list[Command]:
        """Make all test rows available; no worker writes the model from here to `end`."""
        self.leases.test_rows = Ledger(self.plan.test_rows)
        return [ShowMean(True)] * self.plan.stopping.average

    def end(self, now: float) -> tuple[list[Command], str]:
        """Commands that follow from the result, and why training has diverged; empty if not.

        Decides the end of the run where the target is met or the test loss has stalled.
        """
        trained = self.progress.trained
        roster, since = self.leases.roster, self.progress.evaluated_at
        utilization = roster.interval_utilization(since, self.progress.seconds(now))
        evaluation = self.progress.end_evaluation(now, utilization)
        roster.end_interval(evaluation.seconds)
        if self.progress.target_is_met(evaluation):
            self.ending.status = "target"  # even if the end was decided for another reason
        best = self.progress.is_best(evaluation)
        if self.progress.has_stalled():
            self.ending.decide("finished")
        commands = [*self.recovery.warn(trained, self.plan.learning_rate.base), Report(evaluation)]
        keep_last = self.ending.status is not None and self.progress.wants_current_model
        if self.progress.rows > 0 and (best or keep_last):
            commands.append(Keep(evaluation))
        commands += [ShowMean(False)] * self.plan.stopping.average
        return commands, too_many_skipped(trained)
