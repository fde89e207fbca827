"""Evaluation of the model: when it is due, how it begins, and what follows from its result."""

from dataclasses import dataclass

from hogbatch.config.losses import LOSSES
from hogbatch.config.sets import SetName
from hogbatch.coordinator.commands import (
    Command,
    Keep,
    Measure,
    Record,
    Report,
    ShowKept,
    ShowMean,
)
from hogbatch.coordinator.ending import Ending
from hogbatch.coordinator.leases import Leases
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.progress import Metrics, Progress
from hogbatch.coordinator.recovery import Recovery, too_many_skipped
from hogbatch.events.event import EvaluationBegins


@dataclass(slots=True)
class Evaluator:
    """Begins and ends evaluations; workers evaluate the rows in between."""

    plan: Plan
    progress: Progress
    recovery: Recovery
    leases: Leases
    ending: Ending
    measuring: bool = False  # metrics are computed from the scores of all rows

    def is_due(self, now: float) -> bool:
        """Whether training must pause for an evaluation, including the last one."""
        self.ending.check_limits(now)
        pause = self.leases.roster.pause_seconds
        if self.ending.status is not None or self.leases.taken >= self.progress.pause_rows:
            return True
        return self.progress.evaluation_is_due(now, pause)

    def begin(self) -> list[Command]:
        """Make all validation rows available.

        No worker writes the model until `end` or `show_mean`.
        """
        return [*self._begin("validation"), *self.show_mean(True)]

    def measure(self) -> list[Command]:
        """Compute the metrics that are needed besides those of the sums, if there are any.

        Of the validation rows, this is the metric by which models are compared.
        """
        name, evaluated = self.leases.evaluated_set, self.progress.evaluated
        if not self.plan.keeps_scores or not evaluated.rows or evaluated.skipped:
            return []
        metric = self.plan.stopping.metric if name == "validation" else None
        loss = LOSSES[self.plan.training.loss]
        summed = metric is None or metric in loss.summed_metrics(self.plan.targets)
        if name == "validation" and summed:
            return []
        self.measuring = True
        return [Measure(name, metric)]

    def end(self, measured: Metrics, now: float) -> tuple[list[Command], str | None]:
        """Commands that follow from the result, and why training has diverged, if it has.

        `measured` are the metrics that were computed from scores.

        Decides the end of the run where the target is met or the validation loss has stalled.
        """
        progress, ending, roster = self.progress, self.ending, self.leases.roster
        # The last evaluation of a run that is resumed at its end.
        repeats = progress.rows == progress.evaluated_rows > 0
        diverged = too_many_skipped(progress.trained)
        commands = self.recovery.warn(progress.trained, self.plan.learning_rate.base)
        seconds = progress.seconds(now)
        utilization = {}
        if progress.may_measure(now):
            utilization = roster.interval_utilization(progress.evaluated_at, seconds)
        evaluation = progress.end_evaluation(now, utilization, measured, roster.noise.scale)
        roster.end_interval(seconds)
        if progress.target_is_met(evaluation):
            ending.status = "target"  # even if the end was decided for another reason
        best = progress.is_best(evaluation)
        if progress.has_stalled():
            ending.decide("finished")
        if not repeats:
            commands.append(Report(evaluation))
        keep_last = ending.status is not None and progress.wants_current_model
        usable = progress.rows > 0 or self.plan.stopping.first_epoch
        if usable and (best or keep_last):
            commands.append(Keep(evaluation))
        return [*commands, *self.show_mean(False)], diverged

    def begin_test(self, now: float) -> list[Command]:
        """Make all test rows available, to evaluate the kept model; no worker trains any more."""
        self.progress.begin_evaluation(now)
        return [ShowKept(True), *self._begin("test")]

    def _begin(self, name: SetName) -> list[Command]:
        self.leases.begin_evaluation(name)
        return [Record(EvaluationBegins(self.leases.evaluated.rows, name))]

    def show_mean(self, shown: bool) -> list[Command]:
        """Show the moving mean, if there is one; with False, workers may write the model again."""
        return [ShowMean(shown)] if self.plan.stopping.average else []
