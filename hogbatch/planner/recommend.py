"""Which learning rate, and which scaling with the batch, when the user gives none."""

from hogbatch.optim import OPTIMIZERS

FINEST = 1e-4  # bounds of a linear model's rate
COARSEST = 1.0

# Losses whose gradients are larger: a sum over all labels, and one without a bound.
SHARE = {"multilabel": 0.5, "squared": 0.2}

# With a hashed output layer, whose few competitors give it gradients far from zero.
HASHED = {"adagrad": 0.025, "adam": 0.002}

LINEAR_STEPS = 4.0  # a linear model's first step under Adagrad or Adam, over a deep network's


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
    share = 1.0 if adaptive else SHARE.get(loss, 1.0)
    if hashed and optimizer in HASHED:
        return HASHED[optimizer]
    if not linear:
        return spec.learning_rate * share
    if adaptive:
        return _bounded(LINEAR_STEPS * spec.learning_rate / max(value_square, 1e-12) ** 0.5)
    stable = _bounded(1.0 / max(mean_square, 1e-12))
    return stable * (1.0 - spec.momentum) * (share if loss == "squared" else 1.0)


def scaling(optimizer: str) -> str:
    """How the rate grows with the batch: linear where steps add up, else as their noise falls.

    Adagrad and Adam divide by the gradient's own size, so it is its noise that sets the step
    (Malladi et al. 2022, "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms").
    """
    return "sqrt" if optimizer in ("adagrad", "adam") else "linear"


def _bounded(rate: float) -> float:
    return min(max(rate, FINEST), COARSEST)
