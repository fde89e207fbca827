"""Temperature scaling (Guo et al. 2017, "On Calibration of Modern Neural Networks")."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.model.metrics import Doubles, Scored

LARGEST: Final = 10.0  # temperature; the smallest one is its inverse
MAX_SCORES: Final = 1 << 20  # of the rows that determine it: more of them change it very little


def best_temperature(rows: Scored) -> float:
    """The number by which scores are divided for the lowest log loss of `rows`; 1 if it is nan.

    As in Platt scaling (Platt 1999), the labels of N rows are smoothed, by 1 / (N + 1): without an
    error among them, the best probabilities would otherwise be 0 and 1.
    """
    each = slice(None, None, -(-rows.all_scores.size // MAX_SCORES))
    values, weights = rows.labels.values[each], rows.labels.weights[each]
    labels = rows.labels._replace(values=values, weights=weights)
    rows = Scored(rows.loss, labels, rows.all_scores[each])
    scores, smoothing = rows.log_probabilities, 1 / (len(rows.shares) + 1)
    target = (1 - smoothing) * scores[rows.true] + smoothing * scores.mean(axis=1)
    return softmax_temperature(scores, target, rows.shares)


def softmax_temperature(scores: NDArray[Any], targets: NDArray[Any], shares: Doubles) -> float:
    """The number by which scores[N, C] are divided for the lowest softmax loss; 1 if it is nan.

    The loss of a row, whose share in the mean is in shares[N], is the logarithm of the sum of the
    exponentials of its scores, minus targets[N]: the mean score of its true labels. The result is
    at most LARGEST, and at least its inverse.
    """
    inverse = 1.0
    for _ in range(30):  # Newton's method: the loss is a convex function of 1 / temperature
        fractions = np.exp(inverse * (scores - scores.max(axis=1, keepdims=True)))
        fractions /= fractions.sum(axis=1, keepdims=True)
        means = (fractions * scores).sum(axis=1)
        slope = float(shares @ (means - targets))
        curvature = float(shares @ ((fractions * scores**2).sum(axis=1) - means**2))
        step = slope / max(curvature, np.finfo(float).tiny)
        if not abs(step) > 1e-6 * inverse:
            break
        inverse = min(max(inverse - step, inverse / 2, 1 / LARGEST), 2 * inverse, LARGEST)
    return 1 / inverse
