"""How far a run has come: rows, losses, training seconds, and when to evaluate next."""

import math
from dataclasses import dataclass, field

from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.saved import Saved
from hogbatch.model.losses import LOSSES, LossAndMetrics
from hogbatch.telemetry.records import Evaluation
from hogbatch.wire.messages import Done

EVALUATION_FRACTION = 5.0  # by default, train this many times as long as the last evaluation took
FIRST_EVALUATION_S = 0.2
TARGET_FRACTION = 1.0  # the same where a target loss is to end the run: not to miss it by much
FORWARD_FRACTION = 1 / 3  # of the work on a row in training, what an evaluation does


@dataclass(slots=True)
class TrainingClock:
    """Training seconds: time since the first lease, evaluations left out."""

    _before: float = 0.0
    _since: float | None = None

    def start(self, now: float) -> None:
        """Run from `now` on."""
        self._since = now

    def pause(self, now: float) -> None:
        """Stand still from `now` on."""
        self._before = self.read(now)
        self._since = None

    def resume(self, seconds: float) -> None:
        """Stand at `seconds`, from before the run was cut off."""
        self._before = seconds

    def skip(self, seconds: float, now: float) -> None:
        """Leave out `seconds` that have just passed, as far as it has run in them."""
        if self._since is not None:
            self._since = min(self._since + seconds, now)

    def read(self, now: float) -> float:
        """Training seconds at `now`."""
        return self._before + (now - self._since if self._since is not None else 0.0)


@dataclass(slots=True)
class Sums:
    """Losses and metrics of some rows."""

    rows: int = 0  # without those the guard skipped
    skipped: int = 0
    skipped_row: int = 0  # 1 + the number of one of these; see Done
    loss: float = 0.0
    metric_sums: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    def add(self, done: Done) -> None:
        """Take in one finished lease."""
        self.rows += max(0, done.rows - done.skipped)
        self.skipped += done.skipped
        self.skipped_row = done.skipped_row or self.skipped_row
        self.loss += done.loss
        for k, value in enumerate(done.metric_sums[:3]):
            self.metric_sums[k] += value

    @property
    def fraction_skipped(self) -> float:
        """Rows that the guard skipped, over all."""
        return self.skipped / max(1, self.rows + self.skipped)

    def measured(self, loss: str, unit: float) -> LossAndMetrics | None:
        """Loss per row and metrics, where labels were divided by `unit`; None without rows."""
        if not self.rows:
            return None
        metrics = LOSSES[loss].metric_values(self.metric_sums, self.rows)
        return LOSSES[loss].in_units(self.loss / self.rows, metrics, unit)


@dataclass(slots=True)
class Best:
    """The lowest test loss so far, or what stands for it."""

    loss: float = math.inf
    rows: int = 0  # trained on when it was measured

    def beaten_by(self, loss: float | None, rows: int) -> bool:
        """Whether `loss`, measured after `rows` rows, is lower; then it is the best from now on."""
        if loss is None or not loss < self.loss:
            return False
        self.loss, self.rows = loss, rows
        return True


@dataclass(slots=True)
class Progress:
    """What is known of the model in training; `now` is always the caller's clock."""

    plan: Plan
    clock: TrainingClock = field(default_factory=TrainingClock)
    rows: int = 0  # trained on since the start
    trained: Sums = field(default_factory=Sums)  # since the last evaluation
    tested: Sums = field(default_factory=Sums)  # in the evaluation at hand
    _best: Best = field(default_factory=Best)
    _began: float = 0.0  # the evaluation at hand, by the caller's clock
    evaluation_seconds: float = 0.0  # the last evaluation
    evaluated_at: float = 0.0  # training seconds
    evaluated_rows: int = 0
    _epoch_ended: bool = False  # since the last evaluation

    def resume(self, saved: Saved) -> None:
        """Go on where `saved` was taken."""
        self.rows = saved.rows
        self.clock.resume(saved.seconds)
        self._best.beaten_by(saved.best, saved.best_rows)
        self.evaluated_at, self.evaluated_rows = saved.evaluated_at, saved.evaluated_rows
        self.evaluation_seconds = saved.evaluation_seconds

    @property
    def epochs(self) -> float:
        """Passes over the training set so far."""
        return self.rows / self.plan.train_rows

    def seconds(self, now: float) -> float:
        """Training seconds."""
        return self.clock.read(now)

    def add(self, done: Done) -> None:
        """Take in one lease of training."""
        self.rows += done.rows
        self.trained.add(done)

    def time_is_up(self, now: float) -> bool:
        """Whether the run has trained for as long as it may."""
        most = self.plan.ending.max_seconds
        return most is not None and self.seconds(now) >= most

    def evaluation_is_due(self, now: float) -> bool:
        """Whether it is time to stop and see how good the model is."""
        if self.plan.ending.by_epoch:
            return self._epoch_ended
        since, every = self.seconds(now) - self.evaluated_at, self.plan.ending.eval_seconds
        return since >= (self._usual_pause(now) if every is None else every)

    def _usual_pause(self, now: float) -> float:
        """Training seconds between evaluations, unless the user says: fewer as time goes by.

        Sooner after an epoch, so that a set whose epochs take milliseconds is not over before
        anyone has looked, and with a target, so that the run ends soon after it is met.
        """
        seconds, rows = self.seconds(now), self.plan.train_rows
        if self.plan.ending.target_loss is not None:
            return max(TARGET_FRACTION * self._cost(seconds), 0.05 * seconds)
        if self.rows // rows > self.evaluated_rows // rows:
            return max(self.evaluation_seconds, 0.02 * seconds)
        return max(
            FIRST_EVALUATION_S, EVALUATION_FRACTION * self.evaluation_seconds, 0.05 * seconds
        )

    def _cost(self, seconds: float) -> float:
        """What an evaluation takes: as the last one, before the first as training on its rows."""
        if self.evaluation_seconds or not self.rows:
            return self.evaluation_seconds or math.inf
        return FORWARD_FRACTION * self.plan.test_rows * seconds / self.rows

    def end_epoch(self) -> None:
        """Every row of an epoch has been trained on."""
        self._epoch_ended = True

    def roll_back(self) -> None:
        """Forget the losses and skipped rows of a model that is no more."""
        self.trained = Sums()

    def begin_evaluation(self, now: float) -> None:
        """Stop the clock and make room for the test set's sums."""
        self.clock.pause(now)
        self._began = now
        self.tested = Sums()

    def end_evaluation(self, now: float) -> Evaluation:
        """What the evaluation has shown; new sums of training losses begin."""
        loss, unit = self.plan.training.loss, self.plan.unit
        trained = self.trained.measured(loss, unit)
        # one row whose score overflows makes the true loss infinite
        tested = None if self.tested.skipped else self.tested.measured(loss, unit)
        evaluation = Evaluation(
            seconds=self.seconds(now),
            epochs=self.epochs,
            rows=self.rows,
            train_loss=trained and trained.loss,
            test_loss=tested and tested.loss,
            test_values=tested.metrics if tested else {},
        )
        self.evaluation_seconds = now - self._began
        self.evaluated_at, self.evaluated_rows = evaluation.seconds, evaluation.rows
        self.trained = Sums()
        self._epoch_ended = False
        return evaluation

    def target_is_met(self, evaluation: Evaluation) -> bool:
        """Whether the loss is as low as was asked for; without a test set, that of training."""
        target = self.plan.ending.target_loss
        loss = evaluation.test_loss if self.plan.test_rows else evaluation.train_loss
        return target is not None and loss is not None and loss <= target

    def is_best(self, evaluation: Evaluation) -> bool:
        """Whether the test loss is the lowest so far.

        A hashed output layer is trained on the few outputs that compete: the loss over all of them
        falls long after the first metric, which ranks them, is at its best. So that one decides.
        """
        if self.plan.training.lsh is None or not evaluation.test_values:
            return self._best.beaten_by(evaluation.test_loss, evaluation.rows)
        ranking = LOSSES[self.plan.training.loss].ranking(evaluation.test_values)
        return self._best.beaten_by(ranking, evaluation.rows)

    @property
    def _epochs_since_best(self) -> float:
        """Epochs between the evaluation of the best model and the last one."""
        return (self.evaluated_rows - self._best.rows) / self.plan.train_rows

    def has_stalled(self) -> bool:
        """Whether the last evaluations, over `patience` epochs, have brought no better model."""
        patience = self.plan.ending.patience
        return patience > 0 and self._epochs_since_best >= patience

    def why_finished(self) -> str:
        """What to tell people of a run that has come to its end; empty if all is as planned."""
        reasons = []
        if self.plan.ending.target_loss is not None:
            reasons.append(f"the target loss {self.plan.ending.target_loss:g} was not reached")
        if self.has_stalled():
            since = self._epochs_since_best
            reasons.append(f"the test loss has not improved for {since:.0f} epochs")
        elif reasons:
            reasons.append(f"training ended after {self.epochs:.0f} epochs")
        return "; ".join(reasons)

    @property
    def best_loss(self) -> float | None:
        """The lowest test loss so far, or what stands for it; None before there is one."""
        return None if self._best.loss == math.inf else self._best.loss

    @property
    def best_rows(self) -> int:
        """Rows trained on when that was measured."""
        return self._best.rows

    @property
    def wants_current_model(self) -> bool:
        """Whether the model as it stands, and not the best before, is the one to keep."""
        return self.plan.ending.keep == "last" or self._best.loss == math.inf
