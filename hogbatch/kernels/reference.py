"""The contract in plain NumPy, simple enough to verify by reading. Other backends are tested on it.

`HostDevice` and predictions use it, too. The dtype of the arrays decides the precision: float32 in
use, float64 for checks by finite differences.
"""

import numpy as np

from hogbatch.data import csr
from hogbatch.kernels import contract, dropout
from hogbatch.kernels.contract import (
    EXTRA_WEIGHT,
    LOSS,
    METRIC_SUMS,
    SKIPPED,
    SKIPPED_ROW,
    Slots,
)
from hogbatch.kernels.reference_losses import functions_of, sigmoid


def _quiet(function):
    """Results that are not finite are checked where they matter, and cause no warnings here."""
    return np.errstate(over="ignore", invalid="ignore")(function)


def operand_type(params):
    return params


def to_operands(values, out):
    out[:] = values


def gather(inputs, rows, out):
    out[:] = 0
    if len(inputs.indptr):
        members, positions = csr.cells(inputs.indptr, rows)
        np.add.at(out, (members, inputs.indices[positions]), inputs.values[positions])
    else:
        out[:, : inputs.dense.shape[1]] = inputs.dense[rows]


@_quiet
def dense_forward(x, weights, bias, activation, width, out):
    np.matmul(x, weights, out=out)
    _activate(activation, width, bias, out)


@_quiet
def csr_forward(inputs, rows, weights, bias, activation, width, out):
    indptr, positions = csr.positions(inputs.indptr, rows)
    _csr_product(indptr, inputs.indices[positions], inputs.values[positions], weights, out)
    _activate(activation, width, bias, out)


def _csr_product(indptr, indices, values, dense, out):
    """out[M, H] = S[M, N] @ dense[N, H]; a loop over rows, because one row fits in the cache."""
    bounds = indptr.tolist()
    for start, stop, target in zip(bounds, bounds[1:], out, strict=False):
        np.dot(values[start:stop], dense[indices[start:stop]], out=target)


def _activate(kind, width, bias, out):
    out += bias
    real = out[:, :width]
    if kind == contract.RELU:
        np.maximum(real, 0, out=real)
    elif kind == contract.SIGMOID:
        real[:] = sigmoid(real)
    elif kind == contract.TANH:
        np.tanh(real, out=real)
    elif kind == contract.SELU:
        below = contract.SELU_LIMIT * np.expm1(np.minimum(real, 0))
        real[:] = np.where(real > 0, contract.SELU_SLOPE * real, below)
    out[:, width:] = 0


@_quiet
def drop(fraction, key, layer, numbers, width, out):
    first = dropout.mixed(key + np.uint32(layer))
    rows = dropout.mixed(first + numbers.astype(np.uint32))
    columns = np.arange(width, dtype=np.uint32) * dropout.SPREAD
    drawn = dropout.mixed(rows[:, None] + columns)
    kept, real = drawn >= dropout.limit(fraction), out[:, :width]
    real[:] = np.where(kept, real * dropout.factor(fraction), 0)


@_quiet
def output_major_forward(x, weights, bias, width, out):
    np.matmul(x, weights.T, out=out)
    _activate(contract.LINEAR, width, bias, out)


@_quiet
def activate_backward(kind, activated, grad):
    if kind == contract.RELU:
        grad *= activated > 0
    elif kind == contract.SIGMOID:
        grad *= activated * (1 - activated)
    elif kind == contract.TANH:
        grad *= 1 - activated * activated
    elif kind == contract.SELU:
        grad *= np.where(activated > 0, contract.SELU_SLOPE, activated + contract.SELU_LIMIT)


@_quiet
def loss_gradient(kind, labels, rows, numbers, width, scores, grad, totals):
    loss, slope = functions_of(kind)[0](labels, rows, scores[:, :width])
    weights = _weights(labels, rows)
    good = _count(loss, weights, scores[:, :width], totals)
    grad[:] = 0
    slope = slope * weights[:, None]
    np.divide(slope, len(rows), out=grad[:, : slope.shape[1]], where=good[:, None])
    totals[SKIPPED_ROW] = max(totals[SKIPPED_ROW], numbers[~good].max(initial=-1) + 1)


def forget_not_finite(totals, values):
    if totals[SKIPPED] > 0:
        np.nan_to_num(values, copy=False, nan=0.0, posinf=0.0, neginf=0.0)


@_quiet
def loss_and_metrics(kind, labels, rows, width, scores, totals):
    real, (loss_of, metrics_of) = scores[:, :width], functions_of(kind)
    weights = _weights(labels, rows)
    good = _count(loss_of(labels, rows, real)[0], weights, real, totals)
    for metric, terms in enumerate(metrics_of(labels, rows, real)):
        totals[METRIC_SUMS + metric] += (terms * weights)[good].sum(dtype=np.float64)


def _weights(labels, rows):
    """The weights of `rows` [B]."""
    return labels.weights[rows] if len(labels.weights) else np.ones(len(rows), np.float32)


def _count(loss, weights, scores, totals):
    good = np.isfinite(loss) & np.isfinite(scores).all(axis=1)
    totals[LOSS] += (loss * weights)[good].sum(dtype=np.float64)
    totals[EXTRA_WEIGHT] += (weights[good] - 1).sum(dtype=np.float64)
    totals[SKIPPED] += np.count_nonzero(~good)
    return good


@_quiet
def dense_backward(grad, weights, activation, activated, out):
    np.matmul(grad, weights.T, out=out)
    activate_backward(activation, activated, out)


def scale(fraction, grad):
    grad *= fraction


@_quiet
def bound_rows(kind, hyper, batch, x, grad):
    _bound(kind, hyper, batch, np.square(x).sum(axis=1), grad)


def bound_layers(kind, hyper, batch, x, grads):
    for inputs, grad in zip(x, grads, strict=True):
        bound_rows(kind, hyper, batch, inputs, grad)


@_quiet
def csr_bound_rows(kind, hyper, inputs, rows, grad):
    members, positions = csr.cells(inputs.indptr, rows)
    squares = np.bincount(members, np.square(inputs.values[positions]), len(rows))
    _bound(kind, hyper, len(rows), squares, grad)


def _bound(kind, hyper, batch, squares, grad):
    """`bound_rows` from the squared norms of the inputs, squares[B]."""
    if kind in contract.BOUNDED:
        fresh = 1 - hyper.momentum if kind in contract.VELOCITY else 1
        moved = np.maximum(_rate(hyper) / fresh / batch * squares, contract.FURTHEST)
        grad *= (contract.FURTHEST / moved)[:, None].astype(grad.dtype)


def _rate(hyper):
    """The learning rate as a number; captured steps have it in an array [1]."""
    return float(np.asarray(hyper.rate).item())


def weight_gradient(x, grad, out, bias):
    np.matmul(x.T, grad, out=out)
    if bias.size:
        bias_gradient(grad, bias)


def bias_gradient(grad, out):
    grad.sum(axis=0, out=out)


def add_weight_gradient(fraction, x, grad, out):
    out += (fraction * x).T @ grad


def add_bias_gradient(fraction, grad, out):
    out += fraction * grad.sum(axis=0)


@_quiet
def step(kind, hyper, gradient, slots, weights):
    (first, second), rate = slots, _rate(hyper)
    if kind in contract.ADAPTIVE:
        gradient = np.where(np.abs(gradient) < contract.LARGEST, gradient, 0)
    decay = hyper.l2 * weights if hyper.l2 else 0
    g = gradient if kind in contract.DECOUPLED else gradient + decay
    if kind == contract.SGD:
        weights -= rate * g
    elif kind == contract.MOMENTUM:
        first *= hyper.momentum
        first += g
        weights -= rate * first
    elif kind == contract.ADAGRAD:
        first += g * g
        weights -= rate * g / (np.sqrt(first) + hyper.epsilon)
    elif kind == contract.ADAM:
        first += (1 - hyper.momentum) * (g - first)
        second += (1 - hyper.beta2) * (g * g - second)
        weights -= rate * (first / (np.sqrt(second) + hyper.epsilon) + decay)


def csr_scratch(features, width):
    return None


@_quiet
def csr_step(kind, hyper, inputs, rows, grad, scratch, slots, weights):
    members, positions = csr.cells(inputs.indptr, rows)
    by_feature = np.argsort(inputs.indices[positions], kind="stable")
    positions, members = positions[by_feature], members[by_feature]
    touched, starts = np.unique(inputs.indices[positions], return_index=True)
    gradient = np.empty((len(touched), grad.shape[1]), grad.dtype)
    columns = np.append(starts, len(positions))
    _csr_product(columns, members, inputs.values[positions], grad, gradient)
    arrays = *slots, weights
    first, second, stepped = (each[touched] if each.size else each for each in arrays)
    step(kind, hyper, gradient, Slots(first, second), stepped)
    for array, part in zip(arrays, (first, second, stepped), strict=True):
        if array.size:
            array[touched] = part


# The exchange of a replica with the shared parameters.
@_quiet
def hand_over(pulled, params, base, seen, change, finite):
    seen += base
    params -= base
    params += pulled
    np.subtract(params, pulled, out=change)
    base[:] = params
    finite[0] *= np.isfinite(change).all()


def drain(values, out):
    out[:] = values
    values[:] = 0


@_quiet
def add(fraction, scale, seen, change, shared, pulled):
    weight = np.float32(fraction)
    if scale > 0:
        weight = weight * (np.float32(scale) / (np.float32(scale) + np.abs(shared - seen)))
    added = change * weight
    shared += added
    pulled[:] = shared
    np.subtract(added, change, out=seen)


def find_rows(inputs, rows, head, touched, found):
    distinct = np.unique(inputs.indices[csr.positions(inputs.indptr, rows)[1]])
    touched[: len(distinct)] = distinct
    found[0] = len(distinct)


@_quiet
def take_rows(touched, found, params, base, change, finite):
    rows = touched[: found[0]]
    change[: found[0]] = params[rows] - base[rows]
    base[rows] = params[rows]
    finite[0] *= np.isfinite(change[: found[0]]).all()


@_quiet
def rejoin_rows(touched, found, shared, params, base):
    rows = touched[: found[0]]
    pulled = shared[rows]
    params[rows] = pulled + (params[rows] - base[rows])
    base[rows] = pulled


@_quiet
def add_rows(fraction, touched, found, change, shared):
    shared[touched[: found[0]]] += np.float32(fraction) * change[: found[0]]


# Copies of the rows of a batch from a set.
def copy_rows(source, rows, out):
    np.take(source, rows, axis=0, out=out, mode="clip")  # "raise" copies twice


def copy_cells(source, starts, indptr, out):
    places = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], np.diff(indptr))
    out[: indptr[-1]] = source[places]


def select_rows(indptr, rows, starts, out, stored):
    starts[:] = indptr[rows]
    out[0] = 0
    np.cumsum(indptr[rows + 1] - starts, out=out[1:])
    stored[0] = out[-1]
