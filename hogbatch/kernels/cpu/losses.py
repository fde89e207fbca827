"""Losses with their gradients, and the metrics of an evaluation."""

import numpy as np

from hogbatch.jit import kernel
from hogbatch.kernels.contract import (
    HINGE,
    HITS,
    LOGISTIC,
    LOSS,
    MULTILABEL,
    SKIPPED,
    SOFTMAX,
    SQUARED,
)
from hogbatch.kernels.cpu.elementary import exp_negative, sigmoid, softplus

TOP = 5  # the longest list that a metric looks at


@kernel
def softmax_gradient(label, width, scores, grad):
    """grad = softmax(scores) - one-hot(label); return -log p(label)."""
    top = scores[0]
    for c in range(1, width):
        top = max(top, scores[c])
    total = np.float32(0.0)
    for c in range(width):
        grad[c] = exp_negative(scores[c] - top)
        total += grad[c]
    for c in range(width):
        grad[c] /= total
    grad[label] -= np.float32(1.0)
    return np.log(total) + top - scores[label]


@kernel
def multilabel_gradient(positives, width, scores, grad):
    """grad = sigmoid(scores) - y; return the sum of the binary cross entropies."""
    loss = np.float32(0.0)
    for c in range(width):
        loss += softplus(scores[c])
        grad[c] = sigmoid(scores[c])
    for k in range(positives.shape[0]):
        loss -= scores[positives[k]]
        grad[positives[k]] -= np.float32(1.0)
    return loss


@kernel
def row_gradient(kind, labels, row, width, scores, grad):
    """Gradient of one row's loss by its scores[H], not yet divided by B; return the loss."""
    if kind == MULTILABEL:
        positives = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
        return multilabel_gradient(positives, width, scores, grad)
    label = labels.values[row]
    if kind == SOFTMAX:
        return softmax_gradient(int(label), width, scores, grad)
    z = scores[0]
    sign = np.float32(2.0) * label - np.float32(1.0)
    if kind == LOGISTIC:
        grad[0] = sigmoid(z) - label
        return softplus(-sign * z)
    if kind == HINGE:
        margin = np.float32(1.0) - sign * z
        grad[0] = -sign if margin > 0.0 else np.float32(0.0)
        # not max(): a NaN score must stay visible to the guard
        return np.float32(0.0) if margin <= 0.0 else margin
    difference = z - label  # SQUARED
    grad[0] = difference
    return np.float32(0.5) * difference * difference


@kernel
def loss_gradient(kind, labels, rows, width, scores, grad, totals):
    share = np.float32(1.0) / np.float32(rows.shape[0])
    for b in range(rows.shape[0]):
        loss = row_gradient(kind, labels, rows[b], width, scores[b], grad[b])
        check = np.float32(0.0)
        for c in range(width):
            check += grad[b, c] * np.float32(0.0)  # NaN once a gradient is not finite
            grad[b, c] *= share
        for c in range(width, grad.shape[1]):
            grad[b, c] = 0.0
        if np.isfinite(loss) and np.isfinite(check):
            totals[LOSS] += loss
        else:
            totals[SKIPPED] += 1.0
            grad[b, :] = 0.0


@kernel
def count_hits(positives, width, scores, totals):
    """Add precision at 1, 3 and 5; among equal scores the lower label counts as the better."""
    best = np.empty(TOP, np.int64)
    found = 0
    for c in range(width):
        place = found
        while place > 0 and scores[c] > scores[best[place - 1]]:
            place -= 1
        if place < TOP:
            found = min(found + 1, TOP)
            for k in range(found - 1, place, -1):
                best[k] = best[k - 1]
            best[place] = c
    right = np.float64(0.0)
    for k in range(found):
        for p in range(positives.shape[0]):
            if positives[p] == best[k]:
                right += 1.0
        if k == 0:
            totals[HITS] += right
        if k == min(2, found - 1):
            totals[HITS + 1] += right / 3.0
    totals[HITS + 2] += right / 5.0


@kernel
def row_hits(kind, labels, row, width, scores, totals):
    """Add one row to the metrics of its loss."""
    if kind == MULTILABEL:
        positives = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
        count_hits(positives, width, scores, totals)
        return
    label = labels.values[row]
    if kind == SOFTMAX:
        best = 0
        for c in range(1, width):
            if scores[c] > scores[best]:
                best = c
        totals[HITS] += 1.0 if best == int(label) else 0.0
    elif kind == SQUARED:
        difference = np.float64(scores[0]) - np.float64(label)
        totals[HITS] += difference * difference
    else:
        totals[HITS] += 1.0 if (scores[0] > 0.0) == (label > 0.5) else 0.0


@kernel
def loss_and_hits(kind, labels, rows, width, scores, totals):
    grad = np.empty(scores.shape[1], np.float32)
    for b in range(rows.shape[0]):
        loss = row_gradient(kind, labels, rows[b], width, scores[b], grad)
        finite = np.isfinite(loss)
        for c in range(width):
            finite = finite and np.isfinite(scores[b, c])
        if finite:
            totals[LOSS] += loss
            row_hits(kind, labels, rows[b], width, scores[b], totals)
        else:
            totals[SKIPPED] += 1.0
