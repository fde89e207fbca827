"""The best model that ignores the features: what it predicts, and how good that is."""

from typing import Any, NamedTuple

import numpy as np

from hogbatch.config.losses import Loss, LossAndMetrics, OfNumbers
from hogbatch.config.metrics import CUTOFFS
from hogbatch.data.batch import Labels
from hogbatch.data.encode import Encoding, label_text
from hogbatch.kernels.blocks import ScoreSummary, softmax_losses
from hogbatch.kernels.contract import EXTRA_WEIGHT, LOSS, TOTALS
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.machine.printable import rounded
from hogbatch.model.metrics import Doubles, Scored, cells_of, measure, weights_of
from hogbatch.model.prediction import score_numbers

MAX_CONSTANTS = 1 << 20  # scores of a set from which metrics are computed


class Baseline(NamedTuple):
    """Scores of every row, from the training labels alone."""

    scores: Doubles  # [C]
    prediction: str  # in words, for "always predicting ..."


def baseline_of(loss: Loss, encoding: Encoding, labels: Labels) -> Baseline:
    """The baseline for the training `labels`: frequencies of classes, the mean, or a quantile.

    Without probabilities, it is the most frequent class.
    """
    weights = weights_of(labels, _rows(labels) // encoding.targets)
    if isinstance(loss, OfNumbers):
        shape = (-1, encoding.targets) if encoding.targets > 1 else -1
        numbers = encoding.numbers_of(labels.values.reshape(shape)).reshape(-1, encoding.targets)
        means = np.array([_constant(loss.level, each, weights) for each in numbers.T])
        constants = encoding.targets_of(means)
        name = {None: "mean", 0.5: "median"}.get(loss.level, f"quantile {loss.level}")
        one = len(constants) == 1
        which = rounded(encoding.numbers_of(constants)[0]) if one else "of each target"
        return Baseline(loss.scores_of(constants), f"the {name}{', ' if one else ' '}{which}")
    classes = max(2, encoding.outputs) if encoding.classes else encoding.outputs
    rows, columns = cells_of(labels)
    own = weights[rows]
    if loss.label_lists and loss.normalised:  # the labels of a row share its weight
        own = own / np.bincount(rows)[rows]
    counts = np.bincount(columns, own, classes)
    total = counts.sum() if loss.normalised else weights.sum()
    shares = np.maximum(counts, 0.5) / total  # of a class without rows, half a row
    if loss.normalised:
        scores = np.log(shares)
    else:
        shares = np.minimum(shares, 1 - 0.5 / total)
        scores = np.log(shares / (1 - shares))
    if encoding.kind == "binary":
        scores = scores[1:] if loss.has_probabilities else np.sign(scores[1:])
    if loss.label_lists:
        return Baseline(scores, "the most frequent labels")
    return Baseline(scores, label_text(encoding.classes[int(counts.argmax())]))


def evaluate_baseline(
    baseline: Baseline, loss: Loss, encoding: Encoding, labels: Labels
) -> LossAndMetrics:
    """Loss and metrics on rows with these labels, in the unit of the labels.

    Metrics that need all scores are left out if there are many.
    """
    width = len(baseline.scores)
    rows = _rows(labels) // encoding.targets
    scores: Any = np.broadcast_to(baseline.scores, (rows, width))
    if isinstance(loss, OfNumbers):
        numbers = encoding.numbers_of(labels.values.reshape(rows, width))
        mean, scored = score_numbers(loss, encoding, scores, numbers, labels.weights)
    else:
        scored = Scored(loss, labels, scores)
        mean = _mean_loss(scored)
        if width > 1 and rows * width > MAX_CONSTANTS:
            best = np.argsort(-baseline.scores, kind="stable")[: max(CUTOFFS)]
            scored = Scored(loss, labels, None, np.broadcast_to(best, (rows, len(best))))
    values = {name: value for name, value in measure(scored).items() if np.isfinite(value)}
    return LossAndMetrics(mean, values)


def _mean_loss(rows: Scored) -> float:
    """The mean loss of rows with the same scores [C]."""
    loss, scores, totals = rows.loss, rows.all_scores, np.zeros(TOTALS)
    size, width = scores.shape
    if width == 1:
        NUMPY_KERNELS.loss_and_metrics(loss.kind, rows.labels, np.arange(size), 1, scores, totals)
        return float(totals[LOSS] / (size + totals[EXTRA_WEIGHT]))
    owners, columns = rows.true
    summary = ScoreSummary(1, 1, loss.kind)
    summary.add(0, scores[:1].copy())
    sums = np.bincount(owners, scores[0, columns], size)
    if not loss.normalised:
        return rows.mean(summary.total - sums)
    counts = np.bincount(owners, minlength=size)
    return rows.mean(softmax_losses(summary.total, summary.highest, sums, counts))


def _constant(level: float | None, values: Doubles, weights: Doubles) -> float:
    """The mean of values[N], or their quantile."""
    if level is None:
        return float(np.average(values, weights=weights))
    order = np.argsort(values)
    sums = np.cumsum(weights[order])
    place = min(int(np.searchsorted(sums, level * sums[-1])), len(order) - 1)
    return float(values[order[place]])


def _rows(labels: Labels) -> int:
    return max(len(labels.values), len(labels.indptr) - 1)
