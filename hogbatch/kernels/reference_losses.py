"""The losses and metrics of the reference backend, with their slopes; see `reference.py`.

Losses of one row, z its scores and y its label:
    logistic    log(1 + exp(-m))     m = (2y - 1) z, y in {0, 1}, z the score in column 0
    hinge       max(0, 1 - m)        with slope 0 at the kink
    softmax     -log(exp(z_y) / sum_c exp(z_c)); with label lists, its mean over the labels y
    multilabel  sum_c log(1 + exp(z_c)) - y_c z_c
    squared     (z - y)² / 2         summed over the targets, as in all rows below
    huber       (z - y)² / 2         where |z - y| <= 1, else |z - y| - 1/2
    absolute    |z - y|              with slope 0 at the kink
    quantile    max(q (y - z), (1 - q) (z - y))    with slope 0 at the kink
    poisson     exp(z) - y + y (log y - z)    where exp(z) - y <= STEEPEST, then a straight line
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from hogbatch.data import csr
from hogbatch.kernels import contract

Function = TypeVar("Function", bound=Callable[..., Any])


def quiet(function: Function) -> Function:
    """Results that are not finite are checked where they matter, and cause no warnings here."""
    return np.errstate(over="ignore", invalid="ignore")(function)


def sigmoid(z: Any) -> Any:
    """1 / (1 + exp(-z)), without an overflow for z far below zero."""
    small = np.exp(-np.abs(z))
    return np.where(z < 0, small, 1) / (1 + small)


# The functions of losses take the labels of the whole set, rows[B] and the real scores z[B, C], and
# return the loss[B] with its slope[B, C], or [B, 1] for losses of one score.
def _logistic(labels, rows, z):
    sign = 2 * labels.values[rows, None] - 1
    margin = sign * z[:, :1]
    return np.logaddexp(0, -margin)[:, 0], -sign * sigmoid(-margin)


def _hinge(labels, rows, z):
    sign = 2 * labels.values[rows, None] - 1
    margin = sign * z[:, :1]
    return np.maximum(0, 1 - margin)[:, 0], np.where(margin < 1, -sign, 0)


def _softmax(labels, rows, z):
    """The target of a row is its label, or even over its labels."""
    if len(labels.indptr):
        indptr, positions = csr.positions(labels.indptr, rows)
        true = labels.indices[positions]
    else:
        indptr, true = np.arange(len(rows) + 1), labels.values[rows].astype(np.intp)
    counts = np.diff(indptr)
    cells = np.repeat(np.arange(len(z)), counts), true
    target = (1 / np.repeat(counts, counts)).astype(z.dtype)
    shifted = z - z.max(axis=1, keepdims=True)
    probabilities = np.exp(shifted)
    total = probabilities.sum(axis=1, keepdims=True)
    any_true = (counts > 0).astype(z.dtype)  # a factor: 0 times nan or inf is nan
    loss = any_true * np.log(total[:, 0])
    np.subtract.at(loss, cells[0], target * shifted[cells])
    probabilities *= any_true[:, None] / total
    probabilities[cells] -= target
    return loss, probabilities


def _multilabel(labels, rows, z):
    present = _indicators(labels, rows, z)
    losses = np.maximum(z, 0) - present * z + np.log1p(np.exp(-np.abs(z)))
    return losses.sum(axis=1), sigmoid(z) - present


def _indicators(labels, rows, z):
    """[B, C] with 1 where the row has the label, else 0."""
    members, positions = csr.cells(labels.indptr, rows)
    present = np.zeros(z.shape, z.dtype)
    present[members, labels.indices[positions]] = 1
    return present


def _numbers(labels, rows, z):
    """The labels [B, C] of a loss of numbers, one for each score."""
    return labels.values.reshape(-1, z.shape[1])[rows]


def _squared(labels, rows, z):
    error = z - _numbers(labels, rows, z)
    return (error * error / 2).sum(axis=1), error


def _huber(labels, rows, z):
    error = z - _numbers(labels, rows, z)
    slope = np.clip(error, -1, 1)
    return (slope * (error - slope / 2)).sum(axis=1), slope


def _absolute(labels, rows, z):
    loss, slope = _quantile(0.5, labels, rows, z)
    return 2 * loss, 2 * slope


def _quantile(q, labels, rows, z):
    error = z - _numbers(labels, rows, z)
    slope = np.where(error > 0, 1 - q, np.where(error < 0, -q, 0)).astype(z.dtype)
    return (slope * error).sum(axis=1), slope


def _poisson(labels, rows, z):
    y = _numbers(labels, rows, z)
    near = np.minimum(z, np.log(y + contract.STEEPEST))
    slope = np.exp(near) - y
    constant = y * np.log(np.where(y > 0, y, 1))
    return (slope + constant - y * near + slope * (z - near)).sum(axis=1), slope


def _smoothed(loss_of, smoothing, labels, rows, z):
    """The loss of the labels, with the slope for smoothed ones; of softmax or logistic."""
    loss, slope = loss_of(labels, rows, z)
    values, classes = labels.values[rows, None], z.shape[1]
    even = values - 0.5 if loss_of is _logistic else (values == np.arange(classes)) - 1 / classes
    return loss, slope + np.asarray(smoothing * even, z.dtype)


# The functions of metrics take the same arguments and return a list of terms [B], one per sum.
def _right_signs(labels, rows, z):
    return [(z[:, 0] > 0) == (labels.values[rows] > 0)]


def _right_classes(labels, rows, z):
    return [z.argmax(axis=1) == labels.values[rows]]


def _precisions(labels, rows, z):
    """Precision at 1, 3 and 5; of equal scores the one of the lower label counts as higher."""
    present, left, batch = _indicators(labels, rows, z), z.copy(), np.arange(len(rows))
    hits = np.zeros((len(rows), 5), z.dtype)
    for rank in range(min(5, z.shape[1])):
        best = left.argmax(axis=1)
        hits[:, rank] = present[batch, best]
        left[batch, best] = -np.inf
    return [hits[:, :k].sum(axis=1) / k for k in (1, 3, 5)]


def _squared_errors(labels, rows, z):
    return [np.square(z - _numbers(labels, rows, z)).sum(axis=1)]


def _squared_errors_of_means(labels, rows, z):
    means = np.exp(np.minimum(z, contract.LARGEST_LOG))
    return [np.square(means - _numbers(labels, rows, z), dtype=np.float64).sum(axis=1)]


_LOSSES = {  # the functions of loss and metrics
    contract.LOGISTIC: (_logistic, _right_signs),
    contract.HINGE: (_hinge, _right_signs),
    contract.SOFTMAX: (_softmax, _right_classes),
    contract.MULTILABEL: (_multilabel, _precisions),
    contract.SOFTMAX_MANY: (_softmax, _precisions),
    contract.SQUARED: (_squared, _squared_errors),
    contract.HUBER: (_huber, _squared_errors),
    contract.ABSOLUTE: (_absolute, _squared_errors),
    contract.POISSON: (_poisson, _squared_errors_of_means),
}


def functions_of(kind: int) -> Any:
    """The functions of loss and metrics of the loss number `kind`."""
    plain, smoothing = contract.unsmoothed(kind)
    if smoothing:
        loss, metrics = _LOSSES[plain]
        return partial(_smoothed, loss, smoothing), metrics
    return _LOSSES[kind] if kind >= 0 else (partial(_quantile, -1e-6 * kind), _squared_errors)
