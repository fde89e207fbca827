"""Which learning rate to start from when the user gives none."""

from hogbatch.optim import OPTIMIZERS

FINEST = 1e-4  # bounds of a linear model's rate
COARSEST = 1.0

# Losses whose gradients are larger: a sum over all labels, and one without a bound.
SHARE = {"multilabel": 0.5, "squared": 0.2}


def learning_rate(optimizer: str, loss: str, *, linear: bool, mean_square: float) -> float:
    """Learning rate for a batch of `--lr-batch` rows.

    `mean_square` is the mean over rows of the squared norm of the inputs, E|x|². A linear model
    under SGD is stable up to about 1 / curvature, and the curvature of its loss is at most E|x|²
    (Bottou, Curtis & Nocedal 2018, section 4.2), so the rate follows the data: TF-IDF rows of
    norm 1 take 1.0, forty standardised columns 0.025. Deeper networks, and optimizers that scale
    each gradient themselves, have one rate for all data, measured on the sets in
    docs/batch-policy.md.
    """
    spec = OPTIMIZERS[optimizer]
    if optimizer not in ("sgd", "momentum"):
        return spec.learning_rate
    share = SHARE.get(loss, 1.0)
    if not linear:
        return spec.learning_rate * share
    stable = min(max(1.0 / max(mean_square, 1e-12), FINEST), COARSEST)
    return stable * (1.0 - spec.momentum) * (share if loss == "squared" else 1.0)
