"""Evaluation of a very wide output layer stored by neuron: all of it, exactly, block by block.

A row's losses and metrics need the largest of its scores and the sum of their exponentials, but
never all scores at once: blocks of neurons are scored while they are in cache, and forgotten.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.contract import LOSS, METRIC_SUMS, MULTILABEL, ROWS, SKIPPED, SOFTMAX, Floats
from hogbatch.kernels.cpu.dense import aligned, pass_all_down, scratch
from hogbatch.kernels.cpu.elementary import exp_negative, softplus
from hogbatch.kernels.cpu.losses import TOP
from hogbatch.kernels.cpu.model import BIAS, FAN_IN, FAN_OUT, WEIGHTS, WIDTH, vector
from hogbatch.kernels.cpu.network import forward, matrix, workspace

TOGETHER = 128  # rows, and
NEURONS = 512  # neurons of a block


class Seen(NamedTuple):
    """What has been seen of the scores of each of B rows."""

    top: NDArray[np.int64]  # [B, TOP]: the neurons with the highest scores, best first
    best: Floats  # [B, TOP]: their scores
    highest: Floats  # [B]
    total: NDArray[np.float64]  # [B]: sum of exp(score - highest); multilabel: of softplus(score)
    true: NDArray[np.float64]  # [B]: sum of the scores of the row's labels
    labels: NDArray[np.int64]  # [B]: how many of its labels those are


@kernel
def evaluate(model, inputs, labels, rows, lease, fence, totals):
    """Add the losses and metrics of `rows` to `totals`, as `kernels.cpu.network.evaluate` does."""
    hidden = model.table.shape[0] - 1
    size = min(TOGETHER, rows.shape[0])
    space = workspace(model.table[:hidden], inputs.indptr.shape[0] > 0, size)
    fan_in, fan_out = model.table[hidden, FAN_IN], model.table[hidden, FAN_OUT]
    weights = matrix(model.params, model.table[hidden, WEIGHTS], fan_out, fan_in)
    bias = vector(model.params, model.table[hidden, BIAS], fan_out)
    products, scores = scratch(size, fan_in), aligned(size * NEURONS)
    seen = Seen(
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
        x = forward(model, hidden, inputs, part, space)
        forget(seen)
        for first in range(0, width, NEURONS):
            count = min(NEURONS, width - first)
            block = matrix(scores, 0, part.shape[0], count)
            pass_all_down(x, weights[first : first + count], products, block)
            for b in range(part.shape[0]):
                see(lease.loss, labels, part[b], block[b], bias, first, seen, b)
        for b in range(part.shape[0]):
            count_row(lease.loss, labels, part[b], seen, b, totals)
        totals[ROWS] += part.shape[0]


@kernel
def forget(seen):
    seen.top[:] = -1
    seen.best[:] = -np.inf
    seen.highest[:] = -np.inf
    seen.total[:] = 0.0
    seen.true[:] = 0.0
    seen.labels[:] = 0


@kernel
def see(kind, labels, row, scores, bias, first, seen, b):
    """Take in the scores of row b by the neurons from `first` on, which have no bias yet."""
    highest = seen.highest[b]
    for c in range(scores.shape[0]):
        scores[c] += bias[first + c]
        highest = max(highest, scores[c])
    total = np.float32(0.0)
    # what is not finite makes the sum nan
    if kind == MULTILABEL:
        for c in range(scores.shape[0]):
            total += softplus(scores[c]) + scores[c] * np.float32(0.0)
    else:
        for c in range(scores.shape[0]):
            total += exp_negative(scores[c] - highest) + scores[c] * np.float32(0.0)
        if seen.total[b] > 0.0:
            seen.total[b] *= np.exp(np.float64(seen.highest[b]) - np.float64(highest))
    seen.total[b] += total
    seen.highest[b] = highest
    if highest > seen.best[b, TOP - 1]:
        keep_best(scores, first, seen.top[b], seen.best[b])
    add_true(labels, row, scores, first, seen, b)


@kernel
def keep_best(scores, first, top, best):
    """Among equal scores the lower label counts as the better."""
    for c in range(scores.shape[0]):
        if scores[c] > best[TOP - 1]:
            place = TOP - 1
            while place > 0 and scores[c] > best[place - 1]:
                best[place], top[place] = best[place - 1], top[place - 1]
                place -= 1
            best[place], top[place] = scores[c], first + c


@kernel
def add_true(labels, row, scores, first, seen, b):
    """Add the scores of the row's labels in this block; label lists ascend."""
    if labels.indptr.shape[0] == 0:
        column = int(labels.values[row]) - first
        if 0 <= column < scores.shape[0]:
            seen.true[b] = scores[column]
            seen.labels[b] = 1
        return
    start, stop = labels.indptr[row] + seen.labels[b], labels.indptr[row + 1]
    while start < stop and labels.indices[start] < first + scores.shape[0]:
        seen.true[b] += scores[labels.indices[start] - first]
        seen.labels[b] += 1
        start += 1


@kernel
def count_row(kind, labels, row, seen, b, totals):
    """Add loss and metrics of row b, all of whose scores have been seen."""
    if kind == MULTILABEL:
        loss = seen.total[b] - seen.true[b]
    else:
        loss = np.log(seen.total[b]) + seen.highest[b] - seen.true[b] / max(1, seen.labels[b])
        loss = 0.0 * loss if seen.labels[b] == 0 else loss
    if not abs(loss) < np.inf:
        totals[SKIPPED] += 1.0
        return
    totals[LOSS] += max(0.0, loss)
    if kind == SOFTMAX:
        totals[METRIC_SUMS] += 1.0 if seen.top[b, 0] == int(labels.values[row]) else 0.0
        return
    right = 0.0
    for place in range(TOP):
        for n in range(labels.indptr[row], labels.indptr[row + 1]):
            if labels.indices[n] == seen.top[b, place]:
                right += 1.0
        if place == 0:
            totals[METRIC_SUMS] += right
        elif place == 2:
            totals[METRIC_SUMS + 1] += right / 3.0
    totals[METRIC_SUMS + 2] += right / 5.0
