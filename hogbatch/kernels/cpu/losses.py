"""Losses with their gradients, and the metrics of an evaluation."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import inlined, kernel, reduction
from hogbatch.kernels.contract import (
    ABSOLUTE,
    BINARY,
    EXTRA_WEIGHT,
    HINGE,
    HUBER,
    LABEL_LISTS,
    LARGEST_LOG,
    LOGISTIC,
    LOSS,
    METRIC_SUMS,
    MULTILABEL,
    NORMALISED,
    POISSON,
    SKIPPED,
    SKIPPED_ROW,
    SQUARED,
    STEEPEST,
    TOP,
    Floats,
    unsmoothed,
)
from hogbatch.kernels.cpu.elementary import exp_negative, sigmoid, softplus

BLOCK = 128  # columns that are skipped together if none of them is among the best
# Bits of a float32: all but its sign, those of inf, and those of -inf as `in_order` has it.
MAGNITUDE, INFINITE, LOWEST = np.int32(0x7FFFFFFF), np.int32(0x7F800000), np.int32(-0x7F800001)

parts_of = kernel(unsmoothed)  # of the number of a loss


class Targets(NamedTuple):
    """`Labels` without weights, for calls for each row: each array of a call takes time."""

    values: Floats
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]


@kernel
def bits_of(x):
    return np.float32(x).view(np.int32)


@kernel
def finite(x):
    """np.isfinite; Numba computes that by x - x, which fast arithmetic may turn into 0."""
    return bits_of(x) & MAGNITUDE < INFINITE


@kernel
def all_finite(values):
    worst = np.int32(0)
    for c in range(values.shape[0]):
        worst = max(worst, np.int32(bits_of(values[c]) & MAGNITUDE))
    return worst < INFINITE


@kernel
def in_order(bits):
    """Map the bits of floats to integers in the same order; its own inverse."""
    return np.int32(bits ^ MAGNITUDE) if bits < 0 else np.int32(bits)


@kernel
def greatest(scores):
    """The maximum of scores[...], -inf if there are none, undefined if one is NaN.

    Compared as integers, because LLVM does not vectorise a maximum of floats that may be NaN.
    """
    best = LOWEST
    for c in range(scores.shape[0]):
        best = max(best, in_order(bits_of(scores[c])))
    return np.int32(in_order(best)).view(np.float32)


@reduction
def softmax_gradient(positives, width, fraction, smoothing, scores, grad):
    """grad = fraction * (softmax(scores) - y / sum(y)); return -mean log p over the positives.

    Without positives both are 0, unless a score is not finite. The gradient is for smoothed labels
    (`contract.smoothed`).
    """
    count = positives.shape[0]
    target = np.float32(1.0) / np.float32(max(count, 1))
    even = fraction * smoothing / np.float32(width)
    any_true = np.float32(min(count, 1))
    top = greatest(scores[:width])
    total = np.float32(0.0)
    for c in range(width):
        grad[c] = exp_negative(scores[c] - top)
        total += grad[c]
    factor = any_true * fraction / total
    for c in range(width):
        grad[c] = grad[c] * factor - even
    loss = any_true * np.log(total)
    for k in range(count):
        true = int(positives[k])
        loss += target * (top - scores[true])
        grad[true] -= target * (fraction - fraction * smoothing)
    return loss


@reduction
def multilabel_gradient(positives, width, fraction, scores, grad):
    """grad = fraction * (sigmoid(scores) - y); return the sum of the binary cross entropies."""
    loss = np.float32(0.0)
    for c in range(width):
        loss += softplus(scores[c])
        grad[c] = fraction * sigmoid(scores[c])
    for k in range(positives.shape[0]):
        loss -= scores[positives[k]]
        grad[positives[k]] -= fraction
    return loss


@kernel
def poisson_loss(label, z):
    """The loss of config.losses.Poisson, and its derivative by z."""
    farthest = np.log(label + np.float32(STEEPEST))
    near = farthest if z > farthest else z
    slope = np.exp(near) - label
    constant = label * np.log(label) if label > 0.0 else np.float32(0.0)
    return slope + constant - label * near + slope * (z - near), slope


@kernel
def loss_of_number(kind, label, z):
    """The loss of a predicted number, and its derivative by the score z."""
    difference = z - label
    if kind == SQUARED:
        return np.float32(0.5) * difference * difference, difference
    if kind == HUBER:
        slope = min(max(difference, np.float32(-1.0)), np.float32(1.0))
        return slope * (difference - np.float32(0.5) * slope), slope
    if kind == POISSON:
        return poisson_loss(label, z)
    # ABSOLUTE, or a quantile
    above = np.float32(1.0 if kind == ABSOLUTE else 1.0 + 1e-6 * kind)
    below = np.float32(-1.0 if kind == ABSOLUTE else 1e-6 * kind)
    slope = above if difference > 0.0 else (below if difference < 0.0 else np.float32(0.0))
    return slope * difference, slope


@reduction
def scaled_gradient(kind, labels, row, width, fraction, scores, grad):
    """grad[H] = fraction * gradient of one row's loss by its scores[H]; return the loss.

    The gradient is finite if the loss is. The padding of `grad` is not written.
    """
    if kind in LABEL_LISTS:
        positives = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
        if kind == MULTILABEL:
            return multilabel_gradient(positives, width, fraction, scores, grad)
        return softmax_gradient(positives, width, fraction, np.float32(0.0), scores, grad)
    kind, exact_smoothing = parts_of(kind)
    smoothing = np.float32(exact_smoothing)
    if kind in NORMALISED:
        true = labels.values[row : row + 1]
        return softmax_gradient(true, width, fraction, smoothing, scores, grad)
    label, z = labels.values[row], scores[0]
    sign = np.float32(2.0) * label - np.float32(1.0)
    if kind == LOGISTIC:
        target = label - np.float32(0.5) * smoothing * sign
        grad[0] = fraction * (sigmoid(z) - target)
        return softplus(-sign * z)
    if kind == HINGE:
        margin = np.float32(1.0) - sign * z
        grad[0] = -fraction * sign if margin > 0.0 else np.float32(0.0)
        # not max(): NaN must reach the check of the loss
        return np.float32(0.0) if margin <= 0.0 else margin
    loss = np.float32(0.0)
    for c in range(width):
        own, slope = loss_of_number(kind, labels.values[row * width + c], scores[c])
        grad[c] = fraction * slope
        loss += own
    return loss


@kernel
def weight_of(labels, row):
    """The weight of a row."""
    return labels.weights[row] if labels.weights.shape[0] > 0 else np.float32(1.0)


@kernel
def add_loss(loss, weight, totals):
    """Add the loss of a row of this weight."""
    totals[LOSS] += weight * loss
    totals[EXTRA_WEIGHT] += weight - np.float32(1.0)


@kernel
def skip(number, totals):
    """Count a row that training skips, and keep its number."""
    totals[SKIPPED] += 1.0
    totals[SKIPPED_ROW] = max(totals[SKIPPED_ROW], number + 1.0)


@reduction
def loss_gradient(kind, labels, rows, numbers, width, scores, grad, totals):
    fraction = np.float32(1.0) / np.float32(rows.shape[0])
    clean = all_finite(scores.reshape(-1))
    for b in range(rows.shape[0]):
        weight = weight_of(labels, rows[b])
        scale = weight * fraction
        loss = scaled_gradient(kind, labels, rows[b], width, scale, scores[b], grad[b])
        grad[b, width:] = 0.0
        if finite(loss) and (clean or all_finite(scores[b, :width])):
            add_loss(loss, weight, totals)
        else:
            skip(numbers[b], totals)
            grad[b, :] = 0.0


@kernel
def keep_best(scores, first, top, best):
    """Insert the scores of columns `first`... into best[TOP], and the columns into top[TOP].

    Best first; of equal scores the lower column counts as higher.
    """
    for c in range(scores.shape[0]):
        if scores[c] > best[TOP - 1]:
            rank = TOP - 1
            while rank > 0 and scores[c] > best[rank - 1]:
                best[rank], top[rank] = best[rank - 1], top[rank - 1]
                rank -= 1
            best[rank], top[rank] = scores[c], first + c


@kernel
def count_hits(positives, weight, top, totals):
    """Add weight times precision at 1, 3 and 5 of the best columns top[TOP], -1 if fewer."""
    right = np.float64(0.0)
    for rank in range(TOP):
        for p in range(positives.shape[0]):
            if positives[p] == top[rank]:
                right += weight
        if rank == 0:
            totals[METRIC_SUMS] += right
        elif rank == 2:
            totals[METRIC_SUMS + 1] += right / 3.0
    totals[METRIC_SUMS + 2] += right / 5.0


@kernel
def find_best(width, scores, top):
    """Set top[TOP] to the best columns of scores[:width], -1 if there are fewer."""
    best = np.empty(TOP, np.float32)
    best[:], top[:] = -np.inf, -1
    for start in range(0, width, BLOCK):
        block = scores[start : min(start + BLOCK, width)]
        if greatest(block) > best[TOP - 1]:
            keep_best(block, start, top, best)


@kernel
def copy(values, out):
    """Copy `values` to the beginning of `out`; `out[:] = values` takes two seconds to compile."""
    for i in range(values.shape[0]):
        out[i] = values[i]


@kernel
def store_scores(rows, width, scores, stored):
    """Store scores[B, :width] of `rows` in a `contract.RowScores`."""
    for b in range(rows.shape[0]):
        if stored.scores.shape[0] > 0:
            copy(scores[b, :width], stored.scores[rows[b]])
        elif stored.best.shape[0] > 0:
            find_best(width, scores[b], stored.best[rows[b]])


@inlined
def row_metrics(kind, labels, row, width, weight, scores, totals):
    """Add one row to the metrics of its loss."""
    if kind in LABEL_LISTS:
        positives = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
        top = np.empty(TOP, np.int32)
        find_best(width, scores, top)
        count_hits(positives, weight, top, totals)
        return
    if kind in NORMALISED:
        true = int(labels.values[row])
        before, after = greatest(scores[:true]), greatest(scores[true + 1 : width])
        totals[METRIC_SUMS] += weight if before < scores[true] and after <= scores[true] else 0.0
    elif kind in BINARY:
        totals[METRIC_SUMS] += weight if (scores[0] > 0.0) == (labels.values[row] > 0.5) else 0.0
    else:
        for c in range(width):
            predicted = np.float64(scores[c])
            if kind == POISSON:
                predicted = np.exp(min(predicted, LARGEST_LOG))
            difference = predicted - np.float64(labels.values[row * width + c])
            totals[METRIC_SUMS] += weight * difference * difference


@inlined
def loss_and_metrics(kind, labels, rows, width, scores, totals):
    kind, _ = parts_of(kind)
    grad = np.empty(scores.shape[1], np.float32)
    for b in range(rows.shape[0]):
        weight = weight_of(labels, rows[b])
        loss = scaled_gradient(kind, labels, rows[b], width, np.float32(1.0), scores[b], grad)
        if finite(loss) and all_finite(scores[b, :width]):
            add_loss(loss, weight, totals)
            row_metrics(kind, labels, rows[b], width, weight, scores[b], totals)
        else:
            totals[SKIPPED] += 1.0
