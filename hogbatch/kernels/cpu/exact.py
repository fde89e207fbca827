"""Exact evaluation of an output-major output layer: scores are computed and summed up in blocks."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel, reduction
from hogbatch.kernels.contract import (
    LABEL_LISTS,
    METRIC_SUMS,
    NORMALISED,
    ROWS,
    SKIPPED,
    TOP,
    Floats,
)
from hogbatch.kernels.cpu.dense import aligned, backward_scratch, pass_all_down
from hogbatch.kernels.cpu.elementary import exp_negative, softplus
from hogbatch.kernels.cpu.losses import add_loss, copy, count_hits, keep_best, parts_of, weight_of
from hogbatch.kernels.cpu.model import BIAS, FAN_IN, FAN_OUT, WEIGHTS, WIDTH, vector
from hogbatch.kernels.cpu.network import forward, matrix, workspace

TOGETHER = 128  # rows of a block
BLOCK = 512  # outputs of a block


class RowStatistics(NamedTuple):
    """The best scores of each of B rows, and sums over the scores so far."""

    top: NDArray[np.int64]  # [B, TOP]: the outputs with the highest scores, best first
    best: Floats  # [B, TOP]: their scores
    highest: Floats  # [B]
    total: NDArray[np.float64]  # [B]: sum of exp(score - highest), or of softplus(score)
    true: NDArray[np.float64]  # [B]: sum of the scores of the row's labels
    labels: NDArray[np.int64]  # [B]: the number of these labels


@kernel
def evaluate(model, inputs, labels, rows, lease, fence, totals, stored):
    """Do what `kernels.cpu.network.evaluate` does."""
    hidden, (kind, _) = model.table.shape[0] - 1, parts_of(lease.loss)
    size = min(TOGETHER, rows.shape[0])
    space = workspace(model.table[:hidden], inputs.indptr.shape[0] > 0, size)
    fan_in, fan_out = model.table[hidden, FAN_IN], model.table[hidden, FAN_OUT]
    weights = matrix(model.params, model.table[hidden, WEIGHTS], fan_out, fan_in)
    bias = vector(model.params, model.table[hidden, BIAS], fan_out)
    products, scores = backward_scratch(size, fan_in), aligned(size * BLOCK)
    stats = RowStatistics(
        np.empty((size, TOP), np.int64),
        np.empty((size, TOP), np.float32),
        np.empty(size, np.float32),
        np.empty(size, np.float64),
        np.empty(size, np.float64),
        np.empty(size, np.int64),
    )
    width = model.table[hidden, WIDTH]
    for start in range(0, rows.shape[0], size):
        if fence[0] != lease.fence:
            break
        part = rows[start : min(start + size, rows.shape[0])]
        x = forward(model, np.int64(0), hidden, inputs, part, space, None)
        reset(stats)
        for first in range(0, width, BLOCK):
            count = min(BLOCK, width - first)
            block = matrix(scores, 0, part.shape[0], count)
            pass_all_down(x, weights[first : first + count], products, block)
            for b in range(part.shape[0]):
                add_scores(kind, labels, part[b], block[b], bias, first, stats, b)
                if stored.scores.shape[0] > 0:
                    copy(block[b], stored.scores[part[b], first:])
        for b in range(part.shape[0]):
            count_row(kind, labels, part[b], stats, b, totals)
            if stored.best.shape[0] > 0:
                copy(stats.top[b], stored.best[part[b]])
        totals[ROWS] += part.shape[0]


@kernel
def reset(stats):
    stats.top[:] = -1
    stats.best[:] = -np.inf
    stats.highest[:] = -np.inf
    stats.total[:] = 0.0
    stats.true[:] = 0.0
    stats.labels[:] = 0


@reduction
def add_scores(kind, labels, row, scores, bias, first, stats, b):
    """Add the scores of row b for the outputs from `first` on, which lack their bias."""
    highest = stats.highest[b]
    for c in range(scores.shape[0]):
        scores[c] += bias[first + c]
        highest = max(highest, scores[c])
    total = np.float32(0.0)
    # a score that is not finite makes the sum nan
    if kind not in NORMALISED:
        for c in range(scores.shape[0]):
            total += softplus(scores[c]) + scores[c] * np.float32(0.0)
    else:
        for c in range(scores.shape[0]):
            total += exp_negative(scores[c] - highest) + scores[c] * np.float32(0.0)
        if stats.total[b] > 0.0:
            stats.total[b] *= np.exp(np.float64(stats.highest[b]) - np.float64(highest))
    stats.total[b] += total
    stats.highest[b] = highest
    if highest > stats.best[b, TOP - 1]:
        keep_best(scores, first, stats.top[b], stats.best[b])
    add_true(labels, row, scores, first, stats, b)


@kernel
def add_true(labels, row, scores, first, stats, b):
    """Add the scores of the row's labels in this block; label lists are ascending."""
    if labels.indptr.shape[0] == 0:
        column = int(labels.values[row]) - first
        if 0 <= column < scores.shape[0]:
            stats.true[b] = scores[column]
            stats.labels[b] = 1
        return
    start, stop = labels.indptr[row] + stats.labels[b], labels.indptr[row + 1]
    while start < stop and labels.indices[start] < first + scores.shape[0]:
        stats.true[b] += scores[labels.indices[start] - first]
        stats.labels[b] += 1
        start += 1


@kernel
def count_row(kind, labels, row, stats, b, totals):
    """Add loss and metrics of row b, once all its scores were added."""
    if kind not in NORMALISED:
        loss = stats.total[b] - stats.true[b]
    else:
        loss = np.log(stats.total[b]) + stats.highest[b] - stats.true[b] / max(1, stats.labels[b])
        loss = 0.0 * loss if stats.labels[b] == 0 else loss
    if not abs(loss) < np.inf:
        totals[SKIPPED] += 1.0
        return
    weight = weight_of(labels, row)
    add_loss(max(0.0, loss), weight, totals)
    if kind not in LABEL_LISTS:
        totals[METRIC_SUMS] += weight if stats.top[b, 0] == int(labels.values[row]) else 0.0
        return
    positives = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
    count_hits(positives, weight, stats.top[b], totals)
