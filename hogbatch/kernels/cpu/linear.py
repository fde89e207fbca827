"""Linear models over CSR rows: one weight per feature, so a batch is a few loops over its values.

The same algorithm as `network.train`, without matrices: nothing is allocated between two batches,
and a stored value costs a few cycles.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs
from hogbatch.jit import kernel
from hogbatch.kernels.contract import ADDITIVE, BOUNDED, ROWS, UPDATES, Floats, Rows
from hogbatch.kernels.cpu.dense import held
from hogbatch.kernels.cpu.dots import dot_row
from hogbatch.kernels.cpu.intrinsics import address, prefetch_line
from hogbatch.kernels.cpu.losses import Targets, add_loss, finite, scaled_gradient, skip
from hogbatch.kernels.cpu.model import (
    BIAS,
    FAN_IN,
    WEIGHTS,
    corrected,
    max_values,
    vector,
    without_decay,
)
from hogbatch.kernels.cpu.rows import LINE
from hogbatch.kernels.cpu.rules import step_cell
from hogbatch.kernels.cpu.sparse import square_of

ROWS_AHEAD = 4  # rows are in random order, so the hardware cannot predict the next
LINES_AHEAD = 16  # maximum of each row: the hardware prefetches the rest


class Cells(NamedTuple):
    """The weights, or the bias, with their slots, which are [0] if the optimizer has none."""

    weights: Floats
    first: Floats
    second: Floats


class LeaseRows(NamedTuple):
    """The rows of a lease, and the gradients of the current batch."""

    inputs: Inputs
    rows: Rows
    slopes: Floats  # [B]: d(mean loss)/d(score)


class FeatureGradients(NamedTuple):
    """The gradient of a batch by feature."""

    indices: NDArray[np.int32]  # [F]: index of a feature's gradient; -1 everywhere between batches
    touched: NDArray[np.int32]  # [n]: the distinct features
    gradient: Floats  # [n]


@kernel
def cells_of(model, offset, count):
    return Cells(
        vector(model.params, offset, count),
        vector(model.first, offset, count),
        vector(model.second, offset, count),
    )


@kernel
def fetch_row(inputs, row):
    """Prefetch the features and values of a row."""
    start = inputs.indptr[row]
    stop = min(inputs.indptr[row + 1], start + LINE * LINES_AHEAD)
    indices, values = address(inputs.indices), address(inputs.values)
    for n in range(start, stop, LINE):
        prefetch_line(indices + 4 * n)
        prefetch_line(values + 4 * n)


class Row(NamedTuple):
    """The current row of a batch."""

    score: Floats  # [1]
    slope: Floats  # [1]: d(loss)/d(score)


@kernel
def set_slopes(work, targets, row_weights, current, start, stop, loss, weights, bias, totals):
    """work.slopes of rows[start:stop]; `totals` as `reference.Kernels.loss_gradient` does."""
    inputs, rows = work.inputs, work.rows
    indices, values = address(inputs.indices), address(inputs.values)
    fraction = np.float32(1.0) / np.float32(stop - start)
    for b in range(start, stop):
        fetch_row(inputs, rows[min(b + ROWS_AHEAD, rows.shape[0] - 1)])
        begin, end = inputs.indptr[rows[b]], inputs.indptr[rows[b] + 1]
        current.score[0] = bias
        dot_row((indices, values, begin, end, address(weights), address(current.score)))
        score, slope = current
        row_loss = scaled_gradient(loss, targets, rows[b], 1, np.float32(1.0), score, slope)
        if finite(row_loss) and finite(current.score[0]):
            weight = row_weights[rows[b]] if row_weights.shape[0] > 0 else np.float32(1.0)
            add_loss(row_loss, weight, totals)
            work.slopes[b - start] = weight * current.slope[0] * fraction
        else:
            skip(rows[b], totals)
            work.slopes[b - start] = 0.0


@kernel
def bound_slopes(kind, hyper, work, start, stop):
    """`reference.Kernels.bound_rows`."""
    if kind not in BOUNDED:
        return
    for b in range(start, stop):
        row = work.rows[b]
        begin, end = work.inputs.indptr[row], work.inputs.indptr[row + 1]
        square = square_of(work.inputs.values, begin, end)
        work.slopes[b - start] *= held(kind, hyper, square, stop - start)


@kernel
def step_by_values(kind, hyper, work, start, stop, cells):
    """Step once per stored value: exact for one row, and for ADDITIVE optimizers."""
    inputs = work.inputs
    for b in range(start, stop):
        slope = work.slopes[b - start]
        for n in range(inputs.indptr[work.rows[b]], inputs.indptr[work.rows[b] + 1]):
            step_cell(kind, hyper, slope * inputs.values[n], cells, np.uint32(inputs.indices[n]))


@kernel
def sum_by_feature(work, start, stop, sums):
    """Sum the gradient of each feature in the batch; return the number of distinct features."""
    inputs = work.inputs
    distinct = 0
    for b in range(start, stop):
        slope = work.slopes[b - start]
        for n in range(inputs.indptr[work.rows[b]], inputs.indptr[work.rows[b] + 1]):
            f = np.uint32(inputs.indices[n])
            known = sums.indices[f]
            new = known < 0  # half of them are, so a branch would be mispredicted
            index = np.uint32(distinct if new else known)
            before = sums.gradient[index]
            before = np.float32(0.0) if new else before
            sums.gradient[index] = before + slope * inputs.values[n]
            sums.indices[f] = index
            sums.touched[distinct] = f  # overwritten by the next feature unless it is new
            distinct += new
    return distinct


@kernel
def step_by_features(kind, hyper, distinct, sums, cells):
    """Step every touched feature once, and reset sums.indices."""
    for t in range(distinct):
        f = np.uint32(sums.touched[t])
        sums.indices[f] = -1
        step_cell(kind, hyper, sums.gradient[t], cells, f)


@kernel
def step_bias(kind, hyper, slopes, count, bias):
    """Step the bias, which has no weight decay."""
    gradient = np.float32(0.0)
    for b in range(count):
        gradient += slopes[b]
    plain = without_decay(hyper)
    step_cell(kind, plain, gradient, bias, 0)


class LinearWorkspace(NamedTuple):
    """Memory of one thread, and what a batch keeps between its two stages."""

    slopes: Floats  # [B]: d(mean loss)/d(score)
    number: NDArray[np.int64]  # [1]: of the update, for `corrected`; set with the loss
    current: Row
    sums: FeatureGradients  # of no features if batches are stepped by values


@kernel
def workspace(size, head, stored):
    """Allocate for batches of `size` rows, with sums of up to `stored` features."""
    return LinearWorkspace(
        np.empty(size, np.float32),
        np.zeros(1, np.int64),
        Row(np.empty(1, np.float32), np.empty(1, np.float32)),
        FeatureGradients(head, np.empty(stored, np.int32), np.empty(stored, np.float32)),
    )


@kernel
def open_batches(model, inputs, labels, rows, size, head):
    """See `network.open_batches`; `head` is `FeatureGradients.indices`."""
    return workspace(size, head, max_values(inputs, rows, size))


@kernel
def steps_by_values(kind, hyper, size):
    """Whether batches of `size` rows are stepped by values, which needs no FeatureGradients."""
    return size == 1 or (kind in ADDITIVE and hyper.l2 == 0.0)


@kernel
def run_stages(model, inputs, labels, rows, lease, hyper, space, totals, first, stop, down):
    """Compute the stages first : stop of a batch: slopes, then the update."""
    kind, size, work = lease.optimizer, rows.shape[0], LeaseRows(inputs, rows, space.slopes)
    targets, row_weights = Targets(labels.values, labels.indptr, labels.indices), labels.weights
    weights = cells_of(model, model.table[0, WEIGHTS], model.table[0, FAN_IN])
    bias = cells_of(model, model.table[0, BIAS], 1)
    if first == 0:
        cells, shift = weights.weights, bias.weights[0]
        set_slopes(
            work, targets, row_weights, space.current, 0, size, lease.loss, cells, shift, totals
        )
        model.steps[0] += 1
        space.number[0] = model.steps[0]
        totals[ROWS] += size
        totals[UPDATES] += 1.0
    if stop == 2:
        exact = corrected(kind, hyper, space.number[0])
        bound_slopes(kind, exact, work, 0, size)
        if steps_by_values(kind, hyper, size):
            step_by_values(kind, exact, work, 0, size, weights)
        else:
            distinct = sum_by_feature(work, 0, size, space.sums)
            step_by_features(kind, exact, distinct, space.sums, weights)
        step_bias(kind, exact, work.slopes, size, bias)


@kernel
def train(model, inputs, labels, rows, lease, hyper, head, fence, totals):
    """Train as `network.train` does, for one layer with one output, on CSR inputs.

    The steps of a batch are those of `run_stages`, a call of which would take as long as a row.
    """
    weights = cells_of(model, model.table[0, WEIGHTS], model.table[0, FAN_IN])
    bias = cells_of(model, model.table[0, BIAS], 1)
    kind, size = lease.optimizer, min(lease.batch_size, rows.shape[0])
    by_values = steps_by_values(kind, hyper, size)
    space = workspace(size, head, 0 if by_values else max_values(inputs, rows, size))
    work, current, sums = LeaseRows(inputs, rows, space.slopes), space.current, space.sums
    targets, row_weights = Targets(labels.values, labels.indptr, labels.indices), labels.weights
    for start in range(0, rows.shape[0], size):
        if fence[0] != lease.fence:
            break
        stop = min(start + size, rows.shape[0])
        set_slopes(
            work,
            targets,
            row_weights,
            current,
            start,
            stop,
            lease.loss,
            weights.weights,
            bias.weights[0],
            totals,
        )
        model.steps[0] += 1  # racy like the weights; only `corrected` reads it
        exact = corrected(kind, hyper, model.steps[0])
        bound_slopes(kind, exact, work, start, stop)
        if by_values:
            step_by_values(kind, exact, work, start, stop, weights)
        else:
            distinct = sum_by_feature(work, start, stop, sums)
            step_by_features(kind, exact, distinct, sums, weights)
        step_bias(kind, exact, work.slopes, stop - start, bias)
        totals[ROWS] += stop - start
        totals[UPDATES] += 1.0
