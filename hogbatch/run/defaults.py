"""Learning rate, batch, epochs and weight decay where the user gives none."""

import math

from hogbatch.model.optimizers import OPTIMIZERS

FINEST = 1e-4  # bounds of a linear model's rate
COARSEST = 1.0

# Losses whose gradients are larger: a sum over all labels, and one without a bound.
FRACTION = {"multilabel": 0.5, "squared": 0.2}
# Adagrad and Adam make up for the size of a gradient, but the former overfits a squared loss less
# with finer steps.
ADAPTIVE_FRACTION = {"adagrad": {"squared": 0.4}, "adam": {}}

# With a hashed output layer, whose few competitors give it gradients far from zero.
HASHED = {"adagrad": 0.025, "adam": 0.002}

LINEAR_STEPS = 4.0  # a linear model's first step under Adagrad or Adam, over a deep network's

LARGEST_BATCH = 64  # rows of a batch on a CPU thread, where there are many,
BATCHES_PER_EPOCH = 32  # fewer where that is needed for so many batches in an epoch,
SMALLEST_BATCH = 8  # but no fewer than this
EPOCHS = 10  # of many rows; of fewer as many as make
LEAST_UPDATES = 3_000
MAX_PER_DEFAULT = 10  # times the default epochs, where a target loss is to end the run
SMALL_ROWS = 10_000  # a set of fewer rows is regularised


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
    section 4.2), so the rate follows the data: TF-IDF rows of norm 1 take 1.0, forty standardised
    columns 0.025. Adagrad and Adam move each weight by about the rate, whatever the gradient, and a
    weight is as large as its input is small: the rate follows 1 / rms of a value. Deeper networks
    have one rate for all data, measured on the sets in docs/batch-policy.md; those whose outputs
    are `hashed`, in docs/slide.md.
    """
    spec = OPTIMIZERS[optimizer]
    adaptive = optimizer in ("adagrad", "adam")
    fraction = ADAPTIVE_FRACTION.get(optimizer, FRACTION).get(loss, 1.0)
    if hashed and optimizer in HASHED:
        return HASHED[optimizer]
    if not linear:
        return spec.learning_rate * fraction
    if adaptive:
        return _bounded(LINEAR_STEPS * spec.learning_rate / max(value_square, 1e-12) ** 0.5)
    stable = _bounded(1.0 / max(mean_square, 1e-12))
    return stable * (1.0 - spec.momentum) * (fraction if loss == "squared" else 1.0)


def scaling(optimizer: str) -> str:
    """How the rate grows with the batch: linear where steps add up, else as their noise falls.

    Adagrad and Adam divide by the gradient's own size, so it is its noise that sets the step
    (Malladi et al. 2022, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms").
    """
    return "sqrt" if optimizer in ("adagrad", "adam") else "linear"


def largest_cpu_batch(rows: int) -> int:
    """Rows of the largest batch on a CPU thread, for a training set of `rows` rows.

    A set of few rows needs many updates, and large batches would leave few for each epoch.
    """
    return min(LARGEST_BATCH, max(SMALLEST_BATCH, rows // BATCHES_PER_EPOCH))


def epochs(rows: int) -> int:
    """Passes over a training set of `rows` rows that make at least LEAST_UPDATES updates."""
    return max(EPOCHS, math.ceil(LEAST_UPDATES * largest_cpu_batch(rows) / rows))


def most_epochs(rows: int) -> int:
    """Passes after which a run ends that a target loss should have ended."""
    return MAX_PER_DEFAULT * epochs(rows)


def patience(rows: int) -> int:
    """Epochs without a lower test loss after which a run ends that has no other limit."""
    return max(EPOCHS, epochs(rows) // 4)


def weight_decay(rows: int) -> float:
    """L2 penalty for a training set of `rows` rows; 0 from SMALL_ROWS rows on.

    A penalty that falls as 1 / rows is a fixed prior on the weights, as with scikit-learn's C and
    alpha. The second term lets it reach 0, so that large sets do not pay for what they do not need.
    Chosen on the sets of benchmarks/quality.py.
    """
    return max(0.0, 2.0 / rows - 2.0 / SMALL_ROWS)


def _bounded(rate: float) -> float:
    return min(max(rate, FINEST), COARSEST)
