"""Progress of a run: rows, losses, training seconds, and when the next evaluation is due."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from hogbatch.config.losses import LOSSES, LossAndMetrics
from hogbatch.coordinator.plan import Plan
from hogbatch.coordinator.saved_state import SavedState
from hogbatch.events.event import Evaluation, Tested
from hogbatch.events.records import SHORTEST, rank
from hogbatch.policy.noise_scale import NoiseScale
from hogbatch.policy.progress import best_interval
from hogbatch.policy.throughput import FORWARD_FRACTION
from hogbatch.wire.messages import Done

Metrics = Mapping[str, float]  # by name

EVALUATION_FRACTION = 5.0  # default training time between evaluations over the last one's duration
FIRST_EVALUATION_S = 0.2
FIRST_FRACTION = 1 / 8  # of the first epoch, until the second evaluation
IMPROVEMENT = 0.001  # of the loss between two evaluations, as a fraction of it, that counts
TARGET_FRACTION = 1.0  # the same with a target loss: the run should end soon after it is met


@dataclass(slots=True)
class TrainingClock:
    """Training seconds: time since the first lease, without evaluations."""

    _before: float = 0.0
    _since: float | None = None

    def run(self, now: float) -> None:
        """Run from `now` on, unless it runs already."""
        self._since = now if self._since is None else self._since

    def pause(self, now: float) -> None:
        self._before = self.read(now)
        self._since = None

    def skip(self, seconds: float, now: float) -> None:
        """Subtract the part of the last `seconds` in which the clock ran."""
        if self._since is not None:
            self._since = min(self._since + seconds, now)

    def read(self, now: float) -> float:
        """Training seconds at `now`."""
        return self._before + (now - self._since if self._since is not None else 0.0)


@dataclass(slots=True)
class LossSums:
    """Sums of losses and metrics over some rows, multiplied by their weights."""

    rows: int = 0  # without skipped rows
    extra_weight: float = 0.0  # sum of their weights - 1
    skipped: int = 0
    skipped_row: int = 0  # 1 + the number of one of these; see Done
    loss: float = 0.0
    metric_sums: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])

    def add(self, done: Done) -> None:
        self.rows += max(0, done.rows - done.skipped)
        self.extra_weight += done.extra_weight
        self.skipped += done.skipped
        self.skipped_row = done.skipped_row or self.skipped_row
        self.loss += done.loss
        for k, value in enumerate(done.metric_sums[:3]):
            self.metric_sums[k] += value

    @property
    def fraction_skipped(self) -> float:
        return self.skipped / max(1, self.rows + self.skipped)

    def measured(self, loss: str, unit: float, targets: int = 1) -> LossAndMetrics | None:
        """Mean loss and metrics of `targets` per row, in their `unit`; None without rows."""
        weight = (self.rows + self.extra_weight) * targets
        if not weight > 0.0:
            return None
        known = LOSSES[loss].summed_metrics(targets)
        metrics = LOSSES[loss].metric_values(self.metric_sums, weight) if known else {}
        return LOSSES[loss].in_units(self.loss / weight, metrics, unit)


@dataclass(slots=True)
class Best:
    """The lowest validation loss so far, or the `ranking` of the best metric."""

    loss: float = math.inf
    rows: int = 0  # trained on when it was measured
    before: float = math.inf  # the best one before it

    def beaten_by(self, loss: float | None, rows: int) -> bool:
        """Whether `loss`, measured after `rows` rows, is lower; if so, it becomes the best."""
        if loss is None or not loss < self.loss:
            return False
        self.before, self.loss, self.rows = self.loss, loss, rows
        return True


@dataclass(slots=True)
class Progress:
    """Progress of the training; `now` is always the caller's clock."""

    plan: Plan
    clock: TrainingClock = field(default_factory=TrainingClock)
    rows: int = 0  # trained on since the start
    trained: LossSums = field(default_factory=LossSums)  # since the last evaluation
    evaluated: LossSums = field(default_factory=LossSums)  # in the current evaluation
    best: Best = field(default_factory=Best)
    _began: float = 0.0  # start of the current evaluation, by the caller's clock
    evaluation_seconds: float = 0.0  # duration of the last evaluation
    evaluated_at: float = 0.0  # training seconds
    evaluated_rows: int = 0
    _interval: float = 0.0  # training seconds between the last two evaluations
    _expected_row_seconds: float = math.inf  # in training, until the first evaluation
    epoch_ended: bool = False  # since the last evaluation
    _evaluated: bool = False  # once or more

    def resume(self, saved: SavedState) -> None:
        """Continue where `saved` was taken."""
        self.rows = saved.rows
        self.clock = TrainingClock(saved.seconds)
        self.best.beaten_by(saved.best, saved.best_rows)
        self.evaluated_at, self.evaluated_rows = saved.evaluated_at, saved.evaluated_rows
        self.evaluation_seconds = saved.evaluation_seconds

    @property
    def epochs(self) -> float:
        """Passes over the training set so far."""
        return self.rows / self.plan.train_rows

    def expect_speed(self, row_seconds: float) -> None:
        """Expect that training takes at most `row_seconds` per row; nan: unknown."""
        self._expected_row_seconds = min(self._expected_row_seconds, row_seconds)

    def seconds(self, now: float) -> float:
        """Training seconds."""
        return self.clock.read(now)

    def add(self, done: Done) -> None:
        self.rows += done.rows
        self.trained.add(done)

    def evaluation_is_due(self, now: float, pause: float) -> bool:
        """Whether it is time to stop training and evaluate the model."""
        if self.plan.stopping.by_epoch:
            return self.epoch_ended
        return self.until_evaluation(now, pause) <= 0.0

    @property
    def pause_rows(self) -> float:
        """Rows after which training pauses for an evaluation in the first epoch; inf: it does not.

        The initial model is evaluated, and then the model each time that the rows have doubled:
        where the features say nothing about the labels, no other model is as good as the initial
        one, and with many sparse features the best one is often from the first epoch. Rows decide,
        not the time, so that a deterministic run repeats these evaluations.
        """
        train = self.plan.train_rows
        if not self.plan.stopping.first_epoch or self.rows >= train:
            return math.inf
        if not self.rows and not self._evaluated:
            return 0.0
        due = max(FIRST_FRACTION * train, 2 * self.evaluated_rows)
        return due if due < train else math.inf

    def until_evaluation(self, now: float, pause: float) -> float:
        """Training seconds until the next evaluation is due; infinite if only epochs decide.

        The workers that train lose `pause` seconds when they pause.
        """
        if self.plan.stopping.by_epoch:
            return math.inf
        since, every = self.seconds(now) - self.evaluated_at, self.plan.stopping.eval_seconds
        return (self._default_interval(now, pause) if every is None else every) - since

    def _default_interval(self, now: float, pause: float) -> float:
        """Default training seconds between evaluations; the interval grows with the time.

        It is shorter after an epoch, so that a run whose epochs take milliseconds is evaluated
        before it is over, and with a target loss, so that the run ends soon after it is met.
        """
        seconds, rows = self.seconds(now), self.plan.train_rows
        if self.plan.stopping.target_loss is not None:
            cost = TARGET_FRACTION * self._evaluation_cost(seconds, gpu_trains=pause > 0.0)
            return max(cost, 0.05 * seconds, best_interval(pause, seconds))
        if self.rows // rows > self.evaluated_rows // rows:
            return max(self.evaluation_seconds, 0.02 * seconds)
        return max(
            FIRST_EVALUATION_S, EVALUATION_FRACTION * self.evaluation_seconds, 0.05 * seconds
        )

    def _evaluation_cost(self, seconds: float, *, gpu_trains: bool) -> float:
        """Expected seconds of an evaluation: as the last one, or derived from training speed."""
        if self.evaluation_seconds:
            return self.evaluation_seconds
        row_seconds = seconds / self.rows if self.rows else math.inf
        if gpu_trains or not self.rows:  # the rows of its first lease may not count yet
            row_seconds = min(row_seconds, self._expected_row_seconds)
        return FORWARD_FRACTION * self.plan.validation_rows * row_seconds

    def may_measure(self, now: float) -> bool:
        """Whether the utilization since the last evaluation says something; see IntervalSpeed."""
        return self.seconds(now) - self.evaluated_at > SHORTEST * self._interval

    def begin_evaluation(self, now: float) -> None:
        """Stop the clock and reset the sums over the rows that are evaluated."""
        self.clock.pause(now)
        self._began = now
        self.evaluated = LossSums()

    def end_evaluation(
        self,
        now: float,
        utilization: dict[str, float],
        measured: Metrics,
        noise: NoiseScale | None = None,
    ) -> Evaluation:
        """The result, with the `utilization` of all workers since the last one, and the `noise`.

        `measured` are the metrics that were computed from scores. The sums of training losses are
        reset.
        """
        plan = self.plan
        trained = self.trained.measured(plan.training.loss, plan.unit, plan.targets)
        validated = self._measured()
        evaluation = Evaluation(
            seconds=self.seconds(now),
            epochs=self.epochs,
            rows=self.rows,
            train_loss=trained and trained.loss,
            validation_loss=validated and validated.loss,
            validation_values=self._values(validated, measured),
            utilization=utilization,
            noise_scale=noise.rows if noise else None,
            noise_error=noise.error if noise else None,
        )
        self.evaluation_seconds = now - self._began
        self._interval = evaluation.seconds - self.evaluated_at
        self.evaluated_at, self.evaluated_rows = evaluation.seconds, evaluation.rows
        self.trained = LossSums()
        self.epoch_ended, self._evaluated = False, True
        return evaluation

    def test_result(self, measured: Metrics) -> Tested:
        """The result on the test rows, with the metrics that were computed from scores."""
        tested = self._measured()
        return Tested(tested and tested.loss, self._values(tested, measured))

    def _values(self, summed: LossAndMetrics | None, measured: Metrics) -> dict[str, float]:
        """All metrics, first the one by which models are compared."""
        if summed is None:
            return {}
        values = {**summed.metrics, **measured}
        metric = self.plan.stopping.metric
        return {metric: values[metric], **values} if metric in values else values

    def _measured(self) -> LossAndMetrics | None:
        """The means over the rows that were evaluated; None without rows, or if one is infinite."""
        # A single row whose score overflows makes the true loss infinite.
        if self.evaluated.skipped:
            return None
        return self.evaluated.measured(self.plan.training.loss, self.plan.unit, self.plan.targets)

    def target_is_met(self, evaluation: Evaluation) -> bool:
        """Whether the validation loss has met the target; without such rows, the training loss."""
        target = self.plan.stopping.target_loss
        loss = evaluation.validation_loss if self.plan.validation_rows else evaluation.train_loss
        return target is not None and loss is not None and loss <= target

    def is_best(self, evaluation: Evaluation) -> bool:
        """Whether the validation loss, or the chosen metric, is the best so far."""
        value = rank(evaluation, self.plan.stopping.metric)
        return self.best.beaten_by(value, evaluation.rows)

    @property
    def _epochs_since_best(self) -> float:
        """Epochs between the evaluation of the best model and the last evaluation."""
        return (self.evaluated_rows - self.best.rows) / self.plan.train_rows

    def has_stalled(self) -> bool:
        """Whether no evaluation of the last `patience` epochs has found a better model."""
        patience = self.plan.stopping.patience
        return patience > 0 and self._epochs_since_best >= patience

    @property
    def still_improves(self) -> bool:
        """Whether the last evaluation has found a model that is better by more than chance."""
        best = self.best
        step = best.before - best.loss
        return best.rows == self.evaluated_rows > 0 and math.inf > step > IMPROVEMENT * best.before

    def why_finished(self) -> str | None:
        """Why a run ended before its target or its planned length; None otherwise."""
        reasons = []
        if self.plan.stopping.target_loss is not None:
            reasons.append(f"the target loss {self.plan.stopping.target_loss:g} was not reached")
        if self.has_stalled():
            since = self._epochs_since_best
            judge = self.plan.stopping.metric or "loss"
            reasons.append(f"the validation {judge} has not improved for {since:.0f} epochs")
        elif reasons:
            reasons.append(f"training ended after {self.epochs:.0f} epochs")
        return "; ".join(reasons) or None

    @property
    def wants_current_model(self) -> bool:
        """Whether the current model is to be kept, and not an earlier, better one."""
        return self.plan.stopping.keep == "last" or math.isinf(self.best.loss)
