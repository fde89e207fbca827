"""The metrics of rows with known labels; `hogbatch.config.metrics` lists them.

Their definitions are those of scikit-learn. A mean over rows is weighted by the rows' weights. Sums
are computed in float64.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.losses import Loss
from hogbatch.config.metrics import CUTOFFS, fitting
from hogbatch.data import csr
from hogbatch.data.batch import Labels
from hogbatch.data.facts import Frequencies
from hogbatch.kernels.blocks import ScoreSummary

Doubles = NDArray[np.float64]

BINS: Final = 15  # of the calibration error
LARGEST_SCORE: Final = 30.0  # of a threshold; float64 tells its probability from 1
A, B = 0.55, 1.5  # constants of propensities, for data sets without values of their own


@dataclass(frozen=True)  # no slots: cached_property needs a __dict__
class Scored:
    """N rows with labels, and the scores that a model gives them.

    `labels` are encoded for kernels. `scores` [N, C] are float32 or float64, or None if only the
    `best` columns [N, k] of each row are known, best first. Real labels and their scores (the
    predictions) are in one unit, which is the unit of rmse and mae; each of C targets has its own.
    """

    loss: Loss
    labels: Labels
    scores: NDArray[Any] | None
    best: NDArray[np.integer] | None = None
    frequencies: Frequencies | None = None  # of label lists, if known
    threshold: float = 0.5  # probability above which a row has the second of two classes

    @cached_property
    def shares(self) -> Doubles:
        """The weights of the rows, with the sum 1: float64[N]."""
        weights = weights_of(self.labels, len(self.top if self.scores is None else self.scores))
        return weights / (weights.sum() or 1.0)

    def mean(self, values: NDArray[Any]) -> float:
        """The weighted mean of values[N]."""
        return float(self.shares @ values)

    @property
    def binary(self) -> bool:
        """Whether one score chooses between two classes."""
        return self.loss.encoding == "binary"

    @property
    def all_scores(self) -> NDArray[Any]:
        """The scores [N, C], for metrics that need them."""
        assert self.scores is not None
        return self.scores

    @cached_property
    def top(self) -> NDArray[np.integer]:
        """The best columns of each row, best first; of equal scores, the first column."""
        if self.best is not None:
            return self.best
        rows, width = self.all_scores.shape
        summary = ScoreSummary(rows, min(max(CUTOFFS), width))
        summary.add(0, self.all_scores)
        return summary.columns

    @cached_property
    def true(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The row and the class of each label: intp[n] each."""
        return cells_of(self.labels)

    @cached_property
    def predicted(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The row and the class of each predicted label: intp[n] each."""
        if self.loss.label_lists:
            owners, columns = np.nonzero(self.all_scores > 0)
            return owners, columns
        classes: NDArray[Any]
        if self.binary:
            classes = self.all_scores[:, 0] > log_odds(self.threshold)
        elif self.scores is not None:  # faster than `top`
            classes = self.scores.argmax(axis=1)
        else:
            classes = self.top[:, 0]
        return np.arange(len(self.shares)), classes.astype(np.intp)

    @cached_property
    def log_probabilities(self) -> Doubles:
        """The logarithms of the probabilities of classes, which sum to 1: float64[N, C]."""
        scores = self.all_scores.astype(np.float64)
        if self.binary:
            scores = np.hstack([np.zeros_like(scores), scores])
        scores -= scores.max(axis=1, keepdims=True)
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return scores

    @cached_property
    def hits(self) -> NDArray[np.bool_]:
        """Whether each of the best columns is a label of its row: bool[N, k]."""
        cells = _cells(np.arange(len(self.top))[:, np.newaxis], self.top)
        return np.isin(cells, _cells(*self.true))


def weights_of(labels: Labels, rows: int) -> Doubles:
    """The weights of N = `rows` rows: float64[N]."""
    given = labels.weights.astype(np.float64)
    return given if len(given) else np.ones(rows)


def cells_of(labels: Labels) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The row and the class of each label: intp[n] each."""
    if len(labels.indptr):
        return csr.rows_of(labels.indptr), labels.indices.astype(np.intp)
    return np.arange(len(labels.values)), labels.values.astype(np.intp)


def log_odds(probability: float) -> float:
    """The score of two classes at which the second one has this probability."""
    return math.log(probability / (1 - probability))


def _cells(rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.int64]:
    """One number for each pair of a row and a column."""
    cells: NDArray[np.int64] = (rows.astype(np.int64) << 32) + columns
    return cells


def _sums(places: NDArray[Any], weights: Doubles, length: int = 0) -> Doubles:
    """The sum of the weights of each place: float64[>= length]."""
    return np.bincount(places, weights, length).astype(np.float64, copy=False)


def measure(rows: Scored, only: str | None = None) -> dict[str, float]:
    """All metrics that can be computed, by name, or `only` one; nan where one is not defined."""
    known = fitting(
        rows.loss, scores=rows.scores is not None, frequencies=rows.frequencies is not None
    )
    counts = rows.shares.any()
    names = [each.name for each in known if only in (None, each.name)]
    return {name: FORMULAS[name](rows) if counts else math.nan for name in names}


def _log_loss(rows: Scored) -> float:
    """-log of the probability of the true class."""
    return -rows.mean(rows.log_probabilities[rows.true])


def _accuracy(rows: Scored) -> float:
    """The fraction of rows whose class is predicted."""
    return rows.mean(rows.true[1] == rows.predicted[1])


def _brier(rows: Scored) -> float:
    """The squared differences of all probabilities to 0 or 1; of two classes, of one of them."""
    fractions = np.exp(rows.log_probabilities)
    squares = (fractions**2).sum(axis=1) - 2 * fractions[rows.true] + 1
    return rows.mean(squares) / (2 if rows.binary else 1)


def _calibration_error(rows: Scored) -> float:
    """The expected calibration error (Naeini, Cooper & Hauskrecht 2015).

    Rows are in BINS intervals [a, b) of equal width by the probability of the predicted class. The
    error is the absolute difference of its mean to the accuracy, averaged over all rows.
    """
    confidence = np.exp(rows.log_probabilities[rows.predicted])
    excess = confidence - (rows.true[1] == rows.predicted[1])
    bins = np.minimum((confidence * BINS).astype(np.intp), BINS - 1)
    return float(np.abs(_sums(bins, rows.shares * excess)).sum())


def _by_class(rows: Scored) -> tuple[Doubles, Doubles, Doubles]:
    """The weight of each class in predictions that are true, in labels, and in predictions."""
    (true_rows, true), (predicted_rows, predicted) = rows.true, rows.predicted
    lists = rows.loss.label_lists
    width = rows.all_scores.shape[1] if lists else 1 + max(1, true.max(), predicted.max())
    hit = np.isin(_cells(*rows.true), _cells(*rows.predicted))
    return (
        _sums(true[hit], rows.shares[true_rows[hit]], width),
        _sums(true, rows.shares[true_rows], width),
        _sums(predicted, rows.shares[predicted_rows], width),
    )


def _balanced_accuracy(rows: Scored) -> float:
    """The mean over the classes that occur of the fraction of their rows that is predicted."""
    hits, true, _ = _by_class(rows)
    return float((hits[true > 0] / true[true > 0]).mean())


def _f1(rows: Scored) -> float:
    """The harmonic mean of precision and recall of the second class."""
    hits, true, predicted = (each[1] for each in _by_class(rows))
    return float(2 * hits / (true + predicted)) if hits else 0.0


def _f1_macro(rows: Scored) -> float:
    """The mean of F1 over the classes that occur or are predicted, or over all C labels."""
    hits, true, predicted = _by_class(rows)
    either = true + predicted
    classes = len(either) if rows.loss.label_lists else np.count_nonzero(either)
    return float((2 * hits[either > 0] / either[either > 0]).sum() / classes)


def _macro(measure_class: Callable[..., float], rows: Scored) -> float:
    """The mean of a metric over the classes for which it is defined; nan if there is none."""
    values = [measure_class(*each, rows.shares) for each in _one_vs_rest(rows)]
    defined = [value for value in values if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def _one_vs_rest(rows: Scored) -> Iterator[tuple[NDArray[Any], NDArray[np.bool_]]]:
    """The scores [N] for each class that occurs, and which rows have it; of two, the second one."""
    scores = rows.log_probabilities if rows.loss.normalised else rows.all_scores
    owners, columns = rows.true
    for column in (1,) if rows.binary else np.unique(columns):
        positive = np.zeros(len(scores), np.bool_)
        positive[owners[columns == column]] = True
        yield scores[:, 0 if rows.binary else column], positive


def _weights_by_score(
    scores: NDArray[Any], positive: NDArray[np.bool_], shares: Doubles
) -> tuple[Doubles, Doubles]:
    """The weight of positive and of negative rows for each distinct score, highest first."""
    _, places = np.unique(-scores, return_inverse=True)
    return _sums(places, shares * positive), _sums(places, shares * ~positive)


def auc(scores: NDArray[Any], positive: NDArray[np.bool_], shares: Doubles) -> float:
    """The area under the ROC curve; nan unless there are positive and negative rows."""
    true, false = _weights_by_score(scores, positive, shares)
    pairs = true.sum() * false.sum()
    return float(true @ (false.sum() - np.cumsum(false) + false / 2) / pairs) if pairs else math.nan


def average_precision(scores: NDArray[Any], positive: NDArray[np.bool_], shares: Doubles) -> float:
    """The mean precision, weighted by the increase in recall; nan without positive rows."""
    true, false = _weights_by_score(scores, positive, shares)
    found = np.cumsum(true)
    precision = found / np.maximum(found + np.cumsum(false), np.finfo(float).tiny)
    return float(true @ precision / found[-1]) if found[-1] else math.nan


def best_threshold(metric: str, rows: Scored) -> float | None:
    """The threshold with the highest `metric` of `config.metrics.TUNED`, for two classes.

    It is in the middle between two scores that occur, or below all of them. None unless both
    classes occur.
    """
    scores = rows.all_scores[:, 0].astype(np.float64).clip(-LARGEST_SCORE, LARGEST_SCORE)
    positive, shares = rows.labels.values > 0, rows.shares
    if not shares @ positive or not shares @ ~positive:
        return None
    # The weights of true and of false positive rows, if those with the highest scores are positive.
    true, false = (np.cumsum(each) for each in _weights_by_score(scores, positive, shares))
    if metric == "f1":
        values = 2 * true / (true + false + true[-1])
    else:  # balanced accuracy, which is a linear function of this difference
        values = true / true[-1] - false / false[-1]
    distinct = np.unique(scores)[::-1]
    lower = np.append(distinct[1:], distinct[-1] - 1)
    place = values.argmax()
    return float(1 / (1 + np.exp(-(distinct[place] + lower[place]) / 2)))


def _of_targets(measure_target: Callable[..., float], rows: Scored) -> float:
    """The mean over the targets of a metric of labels [N] and errors [N] of one."""
    labels = rows.labels.values.reshape(rows.all_scores.shape).astype(np.float64)
    errors = rows.all_scores.astype(np.float64) - labels
    targets = zip(labels.T, errors.T, strict=True)
    return float(np.mean([measure_target(rows.mean, *each) for each in targets]))


def _rmse(mean: Callable[[Doubles], float], labels: Doubles, errors: Doubles) -> float:
    """The root of the mean squared error."""
    return math.sqrt(mean(errors**2))


def _mae(mean: Callable[[Doubles], float], labels: Doubles, errors: Doubles) -> float:
    """The mean absolute error."""
    return mean(np.abs(errors))


def _r2(mean: Callable[[Doubles], float], labels: Doubles, errors: Doubles) -> float:
    """1 - squared error / squared error of the mean label; 0, or 1 if exact, without variance."""
    error, variance = mean(errors**2), mean((labels - mean(labels)) ** 2)
    return 1 - error / variance if variance else float(error == 0)


def _precision(k: int, rows: Scored) -> float:
    """The fraction of the best k columns that are labels."""
    return rows.mean(rows.hits[:, :k].sum(axis=1)) / k


def _ndcg(k: int, rows: Scored) -> float:
    """The discounted cumulative gain of the best k columns, divided by the largest possible one.

    0 for a row without labels.
    """
    discounts = 1 / np.log2(np.arange(k) + 2)
    gains = rows.hits[:, :k] @ discounts[: rows.hits.shape[1]]
    possible = np.concatenate(([0.0], np.cumsum(discounts)))
    labels = np.minimum(np.diff(rows.labels.indptr), k)
    return rows.mean(gains / np.where(labels, possible[labels], 1.0))


def propensities(frequencies: Frequencies) -> Doubles:
    """The probability that each label is observed on a row to which it applies, float64[C].

    1 / (1 + c e^(-A log(N_l + B))), c = (log N - 1)(B + 1)^A, from N training rows of which N_l
    have label l. The values are in (0, 1]. All are 1 up to N = e, which is too few rows for an
    estimate.
    """
    c = max(np.log(max(frequencies.rows, 1)) - 1, 0.0) * (B + 1) ** A
    result: Doubles = 1 / (1 + c * (frequencies.of_label + B) ** -A)
    return result


def _psp(k: int, rows: Scored) -> float:
    """Propensity-scored precision, which gives hits on rare labels more weight than on common ones.

    The sum of 1 / propensity over the labels among the best k columns, divided by the maximum that
    k columns per row could reach, each summed over all rows, as in the Extreme Classification
    Repository; nan if no row has a label. The rarer a label, the more likely it is missing from
    rows to which it applies (Jain, Prabhu & Varma 2016, "Extreme Multi-label Loss Functions for
    Recommendation, Tagging, Ranking & Other Missing Label Applications").
    """
    assert rows.frequencies is not None
    weights, (owners, labels) = 1 / propensities(rows.frequencies), rows.true
    by_gain = np.lexsort((-weights[labels], owners))
    first = (np.arange(len(owners)) - rows.labels.indptr[owners]) < k
    reachable = rows.shares[owners[first]] @ weights[labels[by_gain[first]]]
    reached = rows.mean((rows.hits * weights[rows.top])[:, :k].sum(axis=1))
    return float(reached / reachable) if reachable else math.nan


FORMULAS: Final[dict[str, Callable[[Scored], float]]] = {
    "log_loss": _log_loss,
    "accuracy": _accuracy,
    "balanced_accuracy": _balanced_accuracy,
    "f1": _f1,
    "f1_macro": _f1_macro,
    "auc": partial(_macro, auc),
    "average_precision": partial(_macro, average_precision),
    "brier": _brier,
    "calibration_error": _calibration_error,
    "rmse": partial(_of_targets, _rmse),
    "mae": partial(_of_targets, _mae),
    "r2": partial(_of_targets, _r2),
    **{f"P@{k}": partial(_precision, k) for k in CUTOFFS},
    **{f"nDCG@{k}": partial(_ndcg, k) for k in CUTOFFS},
    **{f"PSP@{k}": partial(_psp, k) for k in CUTOFFS},
}
