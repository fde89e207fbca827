"""Evaluation of the model: when it is due, how it begins, and what follows from its result."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from hogbatch.coordinator.commands import Command, Keep, Record, Report, ShowMean
from hogbatch.coordinator.ending import Ending
from hogbatch.coordinator.leases import Leases
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.progress import Progress
from hogbatch.coordinator.recovery import Recovery, too_many_skipped
from hogbatch.events.event import EvaluationBegins
from hogbatch.events.records import Evaluation


class TestResult(NamedTuple):
    """What the test rows have shown."""

    evaluation: Evaluation  # without the exact training loss
    best: bool  # no earlier model was better
    diverged: str | None  # why training has diverged, if it has
    warnings: list[Command]


@dataclass(slots=True)
class Evaluator:
    """Begins and ends evaluations; workers evaluate rows in between.

    They evaluate the test rows, which decide how the run continues, and then, if the exact
    training loss is wanted and due, all training rows.
    """

    plan: Plan
    progress: Progress
    recovery: Recovery
    leases: Leases
    ending: Ending
    _tested: TestResult | None = None  # set when the test rows are done

    def is_due(self, now: float) -> bool:
        """Whether training must pause for an evaluation, including the last one."""
        self.ending.check_time(now)
        pause = self.leases.roster.pause_seconds
        return self.ending.status is not None or self.progress.evaluation_is_due(now, pause)

    def begin(self) -> list[Command]:
        """Make all test rows available; no worker writes the model from here to `end`.

        After an interruption, only those rows that it has interrupted.
        """
        rows_of: Literal["train", "test"] = "train" if self.test_is_evaluated else "test"
        return [*self._evaluate(rows_of), *self._show_mean(True)]

    def interrupt(self) -> list[Command]:
        """Give up the evaluation of these rows, until `begin`; workers may write the model."""
        return self._show_mean(False)

    def _show_mean(self, shown: bool) -> list[Command]:
        return [ShowMean(shown)] if self.plan.stopping.average else []

    def continue_evaluation(self, now: float) -> list[Command]:
        """Make all training rows available if they are to be evaluated, too; else no commands.

        To be called when all rows so far are done; without commands, `end` follows. Decides the end
        of the run where the target is met or the test loss has stalled.
        """
        if self.test_is_evaluated:
            return []
        epoch_ended = self.progress.epoch_ended
        tested = self._tested = self._end_test(now)
        if tested.diverged or not self._exact_loss_is_due(epoch_ended=epoch_ended):
            return []
        return self._evaluate("train")

    def _evaluate(self, rows_of: Literal["train", "test"]) -> list[Command]:
        self.leases.evaluate(rows_of)
        return [Record(EvaluationBegins(of=rows_of, rows=self.leases.evaluated.rows))]

    def _exact_loss_is_due(self, *, epoch_ended: bool) -> bool:
        """Whether to evaluate all training rows: after an epoch, and at the end of the run."""
        if not self.plan.training.evaluate_train or self.ending.interrupted:
            return False
        if self.leases.epochs.quarantined:  # rows that have killed workers are not tried again
            return False
        return self.progress.rows > 0 and (epoch_ended or self.ending.status is not None)

    @property
    def test_is_evaluated(self) -> bool:
        """Whether an evaluation has a result for the test set already."""
        return self._tested is not None

    def _end_test(self, now: float) -> TestResult:
        trained = self.progress.trained
        warnings = self.recovery.warn(trained, self.plan.learning_rate.base)
        roster, since = self.leases.roster, self.progress.evaluated_at
        utilization = roster.interval_utilization(since, self.progress.seconds(now))
        evaluation = self.progress.end_test(now, utilization)
        roster.end_interval(evaluation.seconds)
        if self.progress.target_is_met(evaluation):
            self.ending.status = "target"  # even if the end was decided for another reason
        best = self.progress.is_best(evaluation)
        if self.progress.has_stalled():
            self.ending.decide("finished")
        return TestResult(evaluation, best, too_many_skipped(trained), warnings)

    def end(self) -> tuple[list[Command], str | None]:
        """Commands that follow from the result, and why training has diverged, if it has.

        The result has no exact training loss if not all training rows are evaluated.
        """
        tested, self._tested = self._tested, None
        assert tested is not None, "the test rows were evaluated"
        evaluation = tested.evaluation
        if self.leases.rows_of == "train" and self.leases.evaluated.finished:
            evaluation = self.progress.with_training_rows(evaluation)
        commands = [*tested.warnings, Report(evaluation)]
        keep_last = self.ending.status is not None and self.progress.wants_current_model
        if self.progress.rows > 0 and (tested.best or keep_last):
            commands.append(Keep(evaluation))
        commands += self._show_mean(False)
        return commands, tested.diverged
