"""Defaults of learning rate, batch, epochs and weight decay, where the user gives none."""

import math

from hogbatch.model.losses import LOSSES, Loss
from hogbatch.model.optimizers import OPTIMIZERS, OptimizerSpec, Scaling

# Bounds of the learning rate of a linear model.
FINEST = 1e-4
COARSEST = 1.0

LINEAR_STEPS = 4.0  # first step of a linear model under an adaptive optimizer, / deep network's

LARGEST_BATCH = 64  # rows of a batch on a CPU thread, if there are many;
BATCHES_PER_EPOCH = 32  # fewer if an epoch would have fewer batches than this,
SMALLEST_BATCH = 8  # but at least this many rows
EPOCHS = 10  # of many rows; more for fewer rows, until there are
MIN_UPDATES = 3_000
MAX_PER_DEFAULT = 10  # times the default epochs, if a target loss is to end the run
SMALL_ROWS = 10_000  # training sets of fewer rows are regularised


def learning_rate(
    optimizer: str,
    loss: str,
    *,
    linear: bool,
    mean_square: float,
    value_square: float,
    hashed: bool = False,
) -> float:
    """Learning rate for a batch of `--lr-batch` rows.

    `mean_square` is the mean over rows of the squared norm of the inputs, E|x|², `value_square`
    the mean square of one stored value. A linear model under SGD is stable up to about
    1 / curvature, and the curvature of its loss is at most E|x|² (Bottou, Curtis & Nocedal 2018,
    section 4.2), so the rate follows the data: 1.0 for TF-IDF rows of norm 1, 0.025 for forty
    standardised columns. Adaptive optimizers move each weight by about the rate, whatever the
    gradient, and a weight is as large as its input is small: the rate follows 1 / rms of a value.
    Deeper networks have one rate for all data, measured on the sets in docs/batch-policy.md, or in
    docs/slide.md for those with a `hashed` output layer.
    """
    spec, trained = OPTIMIZERS[optimizer], LOSSES[loss]
    if hashed and spec.hashed_learning_rate is not None:
        return spec.hashed_learning_rate
    if not linear:
        return spec.learning_rate * _fraction(spec, trained)
    if spec.adaptive:
        return _bounded(LINEAR_STEPS * spec.learning_rate / max(value_square, 1e-12) ** 0.5)
    stable = _bounded(1.0 / max(mean_square, 1e-12))
    return (
        stable
        * (1.0 - spec.momentum)
        * (1.0 if trained.bounded_gradient else _fraction(spec, trained))
    )


def _fraction(spec: OptimizerSpec, loss: Loss) -> float:
    """Fraction of the learning rate for a loss with larger gradients than most.

    Adaptive optimizers make up for the size of a gradient.
    """
    if not spec.adaptive:
        return loss.rate_fraction
    return 1.0 if loss.bounded_gradient else spec.unbounded_loss_fraction


def scaling(optimizer: str) -> Scaling:
    """Growth of the learning rate with the batch.

    Linear if the steps of rows add up. Adaptive optimizers divide by the size of the gradient, so
    its noise determines the step, which falls with the root of the batch (Malladi et al. 2022, "On
    the SDEs and Scaling Rules for Adaptive Gradient Algorithms").
    """
    return OPTIMIZERS[optimizer].scaling


def largest_cpu_batch(rows: int) -> int:
    """Rows of the largest batch on a CPU thread, for a training set of `rows` rows.

    A small set needs many updates, and large batches would leave few in each epoch.
    """
    return min(LARGEST_BATCH, max(SMALLEST_BATCH, rows // BATCHES_PER_EPOCH))


def epochs(rows: int) -> int:
    """Epochs over a training set of `rows` rows that make at least MIN_UPDATES updates."""
    return max(EPOCHS, math.ceil(MIN_UPDATES * largest_cpu_batch(rows) / rows))


def max_epochs(rows: int) -> int:
    """Epochs after which a run ends if it has not reached its target loss."""
    return MAX_PER_DEFAULT * epochs(rows)


def patience(rows: int) -> int:
    """Epochs without a lower test loss after which a run without another limit ends."""
    return max(EPOCHS, epochs(rows) // 4)


def weight_decay(rows: int) -> float:
    """L2 penalty for a training set of `rows` rows; 0 from SMALL_ROWS rows on.

    A penalty that falls as 1 / rows is a fixed prior on the weights, as with scikit-learn's C and
    alpha. The second term makes it reach 0, because large sets need none and it costs time. Chosen
    on the sets of benchmarks/quality.py.
    """
    return max(0.0, 2.0 / rows - 2.0 / SMALL_ROWS)


def _bounded(rate: float) -> float:
    return min(max(rate, FINEST), COARSEST)
