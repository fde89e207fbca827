"""The contract in plain NumPy, simple enough to verify by reading. Other backends are tested on it.

It is also used for real, in `HostDevice` and wherever a model is evaluated without Numba, so
products go through BLAS. The dtype of the arrays decides the precision: float32 in use, float64 for
checks by finite differences.

Losses of one row, z its scores and y its label:
    logistic    log(1 + exp(-m))     m = (2y - 1) z, y in {0, 1}, z the score in column 0
    hinge       max(0, 1 - m)        with slope 0 at the kink
    softmax     -log(exp(z_y) / sum_c exp(z_c)); with label lists, its mean over the labels y
    multilabel  sum_c log(1 + exp(z_c)) - y_c z_c
    squared     (z - y)² / 2         z the score in column 0
"""

import numpy as np

from hogbatch.kernels.contract import (
    ADAGRAD,
    ADAM,
    ADAPTIVE,
    BOUNDED,
    FURTHEST,
    HINGE,
    LARGEST,
    LINEAR,
    LOGISTIC,
    LOSS,
    METRIC_SUMS,
    MOMENTUM,
    MULTILABEL,
    RELU,
    SGD,
    SIGMOID,
    SKIPPED,
    SKIPPED_ROW,
    SOFTMAX,
    SOFTMAX_MANY,
    SQUARED,
    TANH,
    VELOCITY,
    Slots,
)


def operand_type(params):
    return params


def to_operands(values, out):
    out[:] = values


def gather(inputs, rows, out):
    out[:] = 0
    if len(inputs.indptr):
        indptr, positions = _select(inputs.indptr, rows)
        members = np.repeat(np.arange(len(rows)), np.diff(indptr))
        np.add.at(out, (members, inputs.indices[positions]), inputs.values[positions])
    else:
        out[:, : inputs.dense.shape[1]] = inputs.dense[rows]


def mask_bytes(width):
    return 0


@np.errstate(over="ignore", invalid="ignore")
def dense_forward(x, weights, bias, activation, width, mask, out):
    np.matmul(x, weights, out=out)
    _activate(activation, width, bias, out)
    return False


@np.errstate(over="ignore", invalid="ignore")
def csr_forward(inputs, rows, weights, bias, activation, width, out):
    indptr, positions = _select(inputs.indptr, rows)
    _csr_product(indptr, inputs.indices[positions], inputs.values[positions], weights, out)
    _activate(activation, width, bias, out)


def _select(indptr, rows):
    """The CSR of only `rows`: its indptr[B + 1], and the positions of its n values in the whole."""
    starts = indptr[rows]
    counts = indptr[rows + 1] - starts
    local = np.concatenate(([0], np.cumsum(counts)))
    return local, np.arange(local[-1]) + np.repeat(starts - local[:-1], counts)


def _csr_product(indptr, indices, values, dense, out):
    """out[M, H] = S[M, N] @ dense[N, H]; a loop over rows, because one row fits in the cache."""
    bounds = indptr.tolist()
    for start, stop, target in zip(bounds, bounds[1:], out, strict=False):
        np.dot(values[start:stop], dense[indices[start:stop]], out=target)


def _activate(kind, width, bias, out):
    out += bias
    real = out[:, :width]
    if kind == RELU:
        np.maximum(real, 0, out=real)
    elif kind == SIGMOID:
        real[:] = _sigmoid(real)
    elif kind == TANH:
        np.tanh(real, out=real)
    out[:, width:] = 0


@np.errstate(over="ignore", invalid="ignore")
def add_bias(bias, width, out):
    _activate(LINEAR, width, bias, out)


def _sigmoid(z):
    """1 / (1 + exp(-z)), without an overflow for z far below zero."""
    small = np.exp(-np.abs(z))
    return np.where(z < 0, small, 1) / (1 + small)


@np.errstate(over="ignore", invalid="ignore")
def activate_backward(kind, activated, grad):
    if kind == RELU:
        grad *= activated > 0
    elif kind == SIGMOID:
        grad *= activated * (1 - activated)
    elif kind == TANH:
        grad *= 1 - activated * activated


@np.errstate(over="ignore", invalid="ignore")
def loss_gradient(kind, labels, rows, numbers, width, scores, grad, totals):
    loss, slope = _LOSSES[kind](labels, rows, scores[:, :width])
    good = _count(loss, scores[:, :width], totals)
    grad[:] = 0
    np.divide(slope, len(rows), out=grad[:, : slope.shape[1]], where=good[:, None])
    totals[SKIPPED_ROW] = max(totals[SKIPPED_ROW], numbers[~good].max(initial=-1) + 1)


def forget_not_finite(totals, values):
    if totals[SKIPPED] > 0:
        np.nan_to_num(values, copy=False, nan=0.0, posinf=0.0, neginf=0.0)


@np.errstate(over="ignore", invalid="ignore")
def loss_and_metrics(kind, labels, rows, width, scores, totals):
    real = scores[:, :width]
    loss, _ = _LOSSES[kind](labels, rows, real)
    good = _count(loss, real, totals)
    for metric, metric_sums in enumerate(_METRICS[kind](labels, rows, real)):
        totals[METRIC_SUMS + metric] += metric_sums[good].sum(dtype=np.float64)


def _count(loss, scores, totals):
    good = np.isfinite(loss) & np.isfinite(scores).all(axis=1)
    totals[[LOSS, SKIPPED]] += loss[good].sum(dtype=np.float64), np.count_nonzero(~good)
    return good


# The functions of losses take the labels of the whole set, rows[B] and the real scores z[B, C], and
# return the loss[B] with its slope[B, C], or [B, 1] for losses of one score.


def _logistic(labels, rows, z):
    sign = 2 * labels.values[rows, None] - 1
    margin = sign * z[:, :1]
    return np.logaddexp(0, -margin)[:, 0], -sign * _sigmoid(-margin)


def _hinge(labels, rows, z):
    sign = 2 * labels.values[rows, None] - 1
    margin = sign * z[:, :1]
    return np.maximum(0, 1 - margin)[:, 0], np.where(margin < 1, -sign, 0)


def _softmax(labels, rows, z):
    return _cross_entropy(z, np.arange(len(rows) + 1), labels.values[rows].astype(np.intp))


def _softmax_many(labels, rows, z):
    indptr, positions = _select(labels.indptr, rows)
    return _cross_entropy(z, indptr, labels.indices[positions])


def _cross_entropy(z, indptr, true):
    """The target of row b is even over the columns true[indptr[b]:indptr[b + 1]]."""
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
    return losses.sum(axis=1), _sigmoid(z) - present


def _indicators(labels, rows, z):
    """[B, C] with 1 where the row has the label, else 0."""
    indptr, positions = _select(labels.indptr, rows)
    present = np.zeros(z.shape, z.dtype)
    members = np.repeat(np.arange(len(rows)), np.diff(indptr))
    present[members, labels.indices[positions]] = 1
    return present


def _squared(labels, rows, z):
    error = z[:, :1] - labels.values[rows, None]
    return (error * error / 2)[:, 0], error


_LOSSES = {
    LOGISTIC: _logistic,
    HINGE: _hinge,
    SOFTMAX: _softmax,
    MULTILABEL: _multilabel,
    SOFTMAX_MANY: _softmax_many,
    SQUARED: _squared,
}


# The functions of metrics take the same arguments and return a list of terms [B], one per sum.


def _right_signs(labels, rows, z):
    return [(z[:, 0] > 0) == (labels.values[rows] > 0)]


def _right_classes(labels, rows, z):
    return [z.argmax(axis=1) == labels.values[rows]]


def _precisions(labels, rows, z):
    """Precision at 1, 3 and 5; of equal scores the one of the lower label counts as higher."""
    present, left, batch = _indicators(labels, rows, z), z.copy(), np.arange(len(rows))
    found = np.zeros((len(rows), 5), z.dtype)
    for rank in range(min(5, z.shape[1])):
        best = left.argmax(axis=1)
        found[:, rank] = present[batch, best]
        left[batch, best] = -np.inf
    return [found[:, :k].sum(axis=1) / k for k in (1, 3, 5)]


def _squared_errors(labels, rows, z):
    return [np.square(z[:, 0] - labels.values[rows])]


_METRICS = {
    LOGISTIC: _right_signs,
    HINGE: _right_signs,
    SOFTMAX: _right_classes,
    MULTILABEL: _precisions,
    SOFTMAX_MANY: _precisions,
    SQUARED: _squared_errors,
}


@np.errstate(over="ignore", invalid="ignore")
def dense_backward(grad, weights, activation, activated, mask, out):
    np.matmul(grad, weights.T, out=out)
    activate_backward(activation, activated, out)


def scale(fraction, grad):
    grad *= fraction


@np.errstate(over="ignore", invalid="ignore")
def bound_rows(kind, hyper, batch, x, grad):
    _bound(kind, hyper, batch, np.square(x).sum(axis=1), grad)


def bound_layers(kind, hyper, batch, x, grads):
    for inputs, grad in zip(x, grads, strict=True):
        bound_rows(kind, hyper, batch, inputs, grad)


@np.errstate(over="ignore", invalid="ignore")
def csr_bound_rows(kind, hyper, inputs, rows, grad):
    indptr, positions = _select(inputs.indptr, rows)
    members = np.repeat(np.arange(len(rows)), np.diff(indptr))
    squares = np.bincount(members, np.square(inputs.values[positions]), len(rows))
    _bound(kind, hyper, len(rows), squares, grad)


def _bound(kind, hyper, batch, squares, grad):
    """`bound_rows` from the squared norms of the inputs, squares[B]."""
    if kind not in BOUNDED:
        return
    rate = _rate(hyper) / (1 - hyper.momentum) if kind in VELOCITY else _rate(hyper)
    moved = rate / batch * squares
    grad *= (FURTHEST / np.maximum(moved, FURTHEST))[:, None].astype(grad.dtype)


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


@np.errstate(over="ignore", invalid="ignore")
def step(kind, hyper, gradient, slots, weights):
    (first, second), rate = slots, _rate(hyper)
    if kind in ADAPTIVE:
        gradient = np.where(np.abs(gradient) < LARGEST, gradient, 0)
    g = gradient + hyper.l2 * weights if hyper.l2 else gradient
    if kind == SGD:
        weights -= rate * g
    elif kind == MOMENTUM:
        first *= hyper.momentum
        first += g
        weights -= rate * first
    elif kind == ADAGRAD:
        first += g * g
        weights -= rate * g / (np.sqrt(first) + hyper.epsilon)
    elif kind == ADAM:
        first += (1 - hyper.momentum) * (g - first)
        second += (1 - hyper.beta2) * (g * g - second)
        weights -= rate * first / (np.sqrt(second) + hyper.epsilon)


def csr_scratch(features, width):
    return None


@np.errstate(over="ignore", invalid="ignore")
def csr_step(kind, hyper, inputs, rows, grad, scratch, slots, weights):
    touched, gradient = _touched_gradient(inputs, rows, grad)
    parts = Slots(*(slot[touched] if slot.size else slot for slot in slots))
    stepped = weights[touched]
    step(kind, hyper, gradient, parts, stepped)
    weights[touched] = stepped
    for slot, part in zip(slots, parts, strict=True):
        if slot.size:
            slot[touched] = part


def _touched_gradient(inputs, rows, grad):
    """The distinct features[T] of the batch, and X.T @ grad on them, [T, H]."""
    indptr, positions = _select(inputs.indptr, rows)
    members = np.repeat(np.arange(len(rows)), np.diff(indptr))
    by_feature = np.argsort(inputs.indices[positions], kind="stable")
    positions, members = positions[by_feature], members[by_feature]
    touched, first = np.unique(inputs.indices[positions], return_index=True)
    gradient = np.empty((len(touched), grad.shape[1]), grad.dtype)
    columns = np.append(first, len(positions))
    _csr_product(columns, members, inputs.values[positions], grad, gradient)
    return touched, gradient


# The exchange of a replica with the shared parameters.


@np.errstate(over="ignore", invalid="ignore")
def take(params, base, change, finite):
    np.subtract(params, base, out=change)
    base[:] = params
    finite[0] *= np.isfinite(change).all()


@np.errstate(over="ignore", invalid="ignore")
def rejoin(pulled, params, base):
    params -= base
    params += pulled
    base[:] = pulled


@np.errstate(over="ignore", invalid="ignore")
def add(fraction, change, shared):
    shared += np.float32(fraction) * change


@np.errstate(over="ignore", invalid="ignore")
def add_damped(scale, fraction, seen, change, shared):
    shared += change * (np.float32(fraction * scale) / (np.float32(scale) + np.abs(shared - seen)))


def find_rows(inputs, rows, head, touched, found):
    _, positions = _select(inputs.indptr, rows)
    distinct = np.unique(inputs.indices[positions])
    touched[: len(distinct)] = distinct
    found[0] = len(distinct)


@np.errstate(over="ignore", invalid="ignore")
def take_rows(touched, found, params, base, change, finite):
    rows = touched[: found[0]]
    part, own = params[rows], change[: found[0]]
    np.subtract(part, base[rows], out=own)
    base[rows] = part
    finite[0] *= np.isfinite(own).all()


@np.errstate(over="ignore", invalid="ignore")
def rejoin_rows(touched, found, shared, params, base):
    rows = touched[: found[0]]
    pulled = shared[rows]
    params[rows] = pulled + (params[rows] - base[rows])
    base[rows] = pulled


@np.errstate(over="ignore", invalid="ignore")
def add_rows(fraction, touched, found, change, shared):
    shared[touched[: found[0]]] += np.float32(fraction) * change[: found[0]]


# Copies of the rows of a batch from a set.


def copy_rows(source, rows, out):
    np.take(source, rows, axis=0, out=out, mode="clip")  # "raise" copies twice


def copy_cells(source, starts, indptr, out):
    positions = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], np.diff(indptr))
    out[: indptr[-1]] = source[positions]


def select_rows(indptr, rows, starts, out, stored):
    starts[:] = indptr[rows]
    out[0] = 0
    np.cumsum(indptr[rows + 1] - starts, out=out[1:])
    stored[0] = out[-1]
