"""Defaults of the optimizer, learning rate, batch size, epochs and weight decay, from the data."""

import math
from dataclasses import dataclass
from typing import Final

from hogbatch.config.losses import LOSSES, Loss
from hogbatch.config.optimizers import OPTIMIZERS, OptimizerSpec
from hogbatch.policy.limits import largest_cpu_batch

RATE_BATCH = 16  # rows of a batch to which a learning rate applies without scaling
RATE_CAP = 4.0  # maximum factor by which scaling multiplies it

# Bounds of the learning rate of a linear model.
MIN_RATE = 1e-4
MAX_RATE = 1.0

# Factor of the learning rate of a linear model, at least, with an adaptive optimizer and a loss
# with bounded gradients: the weights of a feature that separates the classes well grow to several
# units, however large its values.
BOUNDED_LINEAR_FACTOR = 6.75

# Training rows for each row of the critical batch, and its bounds, in rows.
DENSE_CRITICAL_BATCH = 40, 64, 768
SPARSE_CRITICAL_BATCH = 16, 1536, 25_000  # if most of the work is in a sparse first layer
# What a row in flight costs that a GPU has not seen, if its change is damped by weights, in rows of
# its own batch; docs/decisions/0067-damped-rows-cost-less.md has the measurements.
DAMPED_COST = 0.6
EPOCHS = 10  # for large training sets; small ones get more epochs, for at least
MIN_UPDATES = 3_000  # updates
MAX_PER_DEFAULT = 10  # maximum epochs with a target loss, in default epochs
TABULAR_ROWS = 2_000  # training rows from which on the recipe "tabular" is chosen
DECAY_ROWS = 3_000  # training rows from which on the decay of a recipe falls
SMALL_ROWS = 10_000  # training sets with fewer rows are regularised


@dataclass(frozen=True, slots=True)
class Recipe:
    """Defaults that were chosen together; docs/batch-policy.md has the measurements."""

    optimizer: str
    schedule: str  # of a run that ends after a known number of epochs
    decay: float | None = None  # decoupled, for up to DECAY_ROWS rows; None: `weight_decay`
    unbounded_loss_decay: float | None = None  # the same for a loss with an unbounded gradient

    def decoupled_decay(self, loss: Loss, rows: int) -> float | None:
        """The decay for `rows` training rows, which falls as 1 / rows; None: `weight_decay`."""
        decay = self.decay if loss.bounded_gradient else self.unbounded_loss_decay
        return None if decay is None else decay * min(1.0, DECAY_ROWS / rows)


RECIPES: Final = {
    "fast": Recipe("adagrad", "constant"),  # a good model early
    "tabular": Recipe("adam", "cosine", 1.0, 0.2),  # the best model in the end
    "linear": Recipe("adam", "cosine"),  # the same for linear models on sparse rows
}

HIDDEN: Final = (512, 512)  # widths of the hidden layers
SPARSE_HIDDEN: Final = (256,)
HASHED_HIDDEN: Final = (128,)  # below a hashed output layer


def critical_batch(rows: int, *, dense: bool) -> float:
    """Rows in flight with which a run needs twice the rows, for `rows` training rows.

    `dense` is whether most of the work is in dense layers. There the gradient noise scale, which
    the critical batch follows (McCandlish et al. 2018), was about proportional to the rows trained
    on so far, and a run takes a few epochs; docs/batch-policy.md has the measurements, and
    docs/decisions/0069-critical-batch-with-the-warm-up.md those of sparse networks.
    """
    rows_each, least, most = DENSE_CRITICAL_BATCH if dense else SPARSE_CRITICAL_BATCH
    return min(max(rows / rows_each, least), most)


def learning_rate(
    optimizer: str,
    loss: str,
    *,
    linear: bool,
    mean_square: float,
    value_square: float,
    hashed: bool = False,
    layers: bool = False,
) -> float:
    """The learning rate for a batch of RATE_BATCH rows.

    `mean_square` is the mean over rows of the squared norm of the inputs, E|x|², `value_square`
    the mean square of one stored value. A linear model under SGD is stable up to about
    1 / curvature, and the curvature of its loss is at most E|x|² (Bottou, Curtis & Nocedal 2018,
    section 4.2), so the rate follows the data: 1.0 for TF-IDF rows of norm 1, 0.025 for forty
    standardised columns. Adaptive optimizers move each weight by about the rate, whatever the
    gradient, and the smaller an input, the larger its weight: the rate follows 1 / rms of a value.
    Deep networks have the same rate for all data, measured on the data sets of
    docs/batch-policy.md, of docs/slide.md for those with a `hashed` output layer, or of
    docs/pictures.md for those with `layers`, such as convolutions, below the dense ones.
    """
    spec, trained = OPTIMIZERS[optimizer], LOSSES[loss]
    if hashed and spec.hashed_learning_rate is not None:
        return spec.hashed_learning_rate
    if layers and spec.layers_learning_rate is not None:
        return spec.layers_learning_rate
    if not linear:
        return spec.learning_rate * _factor(spec, trained)
    if spec.adaptive:
        factor = 1.0 / max(value_square, 1e-12) ** 0.5
        if trained.bounded_gradient:
            factor = max(factor, BOUNDED_LINEAR_FACTOR)
        return _bounded(factor * spec.linear_steps * spec.learning_rate)
    stable = _bounded(1.0 / max(mean_square, 1e-12))
    return (
        stable
        * (1.0 - spec.momentum)
        * (1.0 if trained.bounded_gradient else _factor(spec, trained))
    )


def _factor(spec: OptimizerSpec, loss: Loss) -> float:
    """Factor of the learning rate, for losses with large gradients.

    Adaptive optimizers compensate for the size of a gradient.
    """
    if not spec.adaptive:
        return loss.rate_fraction
    return 1.0 if loss.bounded_gradient else spec.unbounded_loss_factor


def epochs(rows: int) -> int:
    """Default epochs over `rows` rows: EPOCHS, or more for at least MIN_UPDATES updates."""
    return max(EPOCHS, math.ceil(MIN_UPDATES * largest_cpu_batch(rows) / rows))


def patience(rows: int) -> int:
    """Epochs without a lower validation loss after which a run without another limit ends."""
    return max(EPOCHS, epochs(rows) // 4)


def weight_decay(rows: int) -> float:
    """L2 penalty for a training set of `rows` rows; 0 from SMALL_ROWS rows on.

    A penalty that falls as 1 / rows is a fixed prior on the weights, as with scikit-learn's C and
    alpha. The second term makes it reach 0, because large sets need no penalty and computing it
    takes time. The constants were chosen on small data sets (docs/batch-policy.md).
    """
    return max(0.0, 2.0 / rows - 2.0 / SMALL_ROWS)


def _bounded(rate: float) -> float:
    return min(max(rate, MIN_RATE), MAX_RATE)
