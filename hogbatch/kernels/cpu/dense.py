"""Dense layers; a block of weights is used while it is in cache."""

from typing import NamedTuple

import numpy as np

from hogbatch.jit import inlined, kernel
from hogbatch.kernels.contract import (
    ADDITIVE,
    BOUNDED,
    FURTHEST,
    LINEAR,
    RELU,
    SIGMOID,
    SKIPPED,
    TANH,
    VELOCITY,
    Floats,
)
from hogbatch.kernels.cpu.brgemm import (
    matrix,
    multiply,
    multiply_transposed,
    packed_rows,
    submatrix,
    transpose,
    transposed,
)
from hogbatch.kernels.cpu.dropout import factor
from hogbatch.kernels.cpu.elementary import selu, selu_slope, sigmoid, tanh
from hogbatch.kernels.cpu.intrinsics import address
from hogbatch.kernels.cpu.losses import finite
from hogbatch.kernels.cpu.rules import step_row
from hogbatch.kernels.cpu.tiles import ACTIVATE, ADD, STORE, Epilogue, Matrix


@kernel
def gather(inputs, rows, out):
    """out[B, K] = the dense inputs of `rows`, zero beyond column F."""
    features = inputs.dense.shape[1]
    for b in range(rows.shape[0]):
        for f in range(features):
            out[b, f] = inputs.dense[rows[b], f]
        for f in range(features, out.shape[1]):
            out[b, f] = 0.0


@kernel
def floor_of(activation):
    """The floor with which max(floor, x) is relu or linear; it is applied where x is computed."""
    return 0.0 if activation == RELU else -np.inf


@kernel
def activate_rest(activation, width, out):
    """Apply an activation that `floor_of` does not cover; relu and linear keep the padding zero."""
    if activation in (LINEAR, RELU):
        return
    for b in range(out.shape[0]):
        if activation == SIGMOID:
            for h in range(width):
                out[b, h] = sigmoid(out[b, h])
        elif activation == TANH:
            for h in range(width):
                out[b, h] = tanh(out[b, h])
        else:
            for h in range(width):
                out[b, h] = selu(out[b, h])
        for h in range(width, out.shape[1]):
            out[b, h] = 0.0


@kernel
def dense_layer(x, fan_in, weights, bias, activation, width, out):
    """out[B, H] = f(x[B, :fan_in] @ weights[:fan_in, H] + bias), zero from column `width` on."""
    epilogue = Epilogue(ACTIVATE, address(bias), floor_of(activation))
    batch, fan_out = out.shape
    multiply(batch, fan_out, fan_in, matrix(x), matrix(weights), matrix(out), epilogue)
    activate_rest(activation, width, out)


@kernel
def add_and_activate(x, kind, out):
    """`reference.Kernels.add_and_activate`."""
    (rows, width), floor = out.shape, np.float32(floor_of(kind))
    for b in range(rows):
        for n in range(width):
            value = out[b, n] + x[b, n]
            out[b, n] = floor if value < floor else value  # nan stays nan
    activate_rest(kind, width, out)


# Rows of weights that backward and update process together: few enough to stay in cache.
BLOCK_ROWS = 48


class BackwardScratch(NamedTuple):
    """Memory of one thread for the backward pass of a dense layer of up to B rows."""

    scaled: Floats  # [B * H]: the gradient, bounded, and under SGD times -rate
    packed: Floats  # [H * B]: its transpose
    product: Floats  # [BLOCK_ROWS * B]
    gradient: Floats  # [BLOCK_ROWS * H]: of a block of weights


@kernel
def aligned(size):
    """float32[size] on a cache line of its own."""
    cells = np.empty(size + 15, np.float32)
    start = -(address(cells) // 4) % 16
    return cells[start : start + size]


@kernel
def backward_scratch(batch, widest):
    """Allocate for batches of `batch` rows and layers `widest` wide on both sides."""
    return BackwardScratch(
        aligned(batch * widest),
        aligned(batch * widest),
        aligned(BLOCK_ROWS * batch),
        aligned(BLOCK_ROWS * widest),
    )


@kernel
def pack(grad, space):
    """The transpose of `grad`[B, H] that `pass_down` takes, and scratch for its product."""
    many = packed_rows(grad.shape[0])
    packed = Matrix(address(space.packed), many, 1)
    transpose(many, grad.shape[1], matrix(grad), packed)
    return packed, Matrix(address(space.product), many, 1)


@kernel
def pass_down(grad, packed, product, weights, first, rows, out):
    """out[B, first : first + rows] = grad[B, H] @ weights[first : first + rows, H].T."""
    batch, fan_out = grad.shape
    here, below = submatrix(matrix(weights), first, 0), submatrix(matrix(out), 0, first)
    multiply_transposed(batch, rows, fan_out, matrix(grad), packed, here, below, product)


@kernel
def pass_all_down(grad, weights, space, out):
    """out = grad @ weights.T; `space` is an argument so that it outlives addresses taken of it."""
    packed, product = pack(grad, space)
    for first in range(0, weights.shape[0], BLOCK_ROWS):
        rows = min(BLOCK_ROWS, weights.shape[0] - first)
        pass_down(grad, packed, product, weights, first, rows, out)


@kernel
def transposed_product(x, grad, out):
    """out[K, H] = x[B, K].T @ grad[B, H]."""
    (batch, fan_in), left = x.shape, transposed(matrix(x))
    store = Epilogue(STORE, 0, 0.0)
    multiply(fan_in, out.shape[1], batch, left, matrix(grad), matrix(out), store)


@inlined
def update_block(kind, hyper, x, scaled, slots, weights, first, rows, space):
    """Update weights[first : first + rows, H] from x[B, K] and `scaled`[B, H] of `scale_rows`.

    An ADDITIVE optimizer adds x.T @ scaled to the weights; others need the gradient in `space`.
    """
    batch, fan_out = scaled.shape
    block, right = submatrix(transposed(matrix(x)), first, 0), matrix(scaled)
    if kind in ADDITIVE:
        if hyper.l2 > 0.0:
            decay = np.float32(1.0 - hyper.rate * hyper.l2)
            for f in range(first, first + rows):
                for h in range(fan_out):
                    weights[f, h] *= decay
        out = submatrix(matrix(weights), first, 0)
        multiply(rows, fan_out, batch, block, right, out, Epilogue(ADD, 0, 0.0))
    else:
        out = Matrix(address(space.gradient), fan_out, 1)
        multiply(rows, fan_out, batch, block, right, out, Epilogue(STORE, 0, 0.0))
        step_rows(kind, hyper, space.gradient, first, rows, slots, weights)


@kernel
def step_rows(kind, hyper, gradient, first, rows, slots, weights):
    """`step` on weights[first : first + rows, H]; `gradient` is flat and begins at row `first`."""
    cells = rows * weights.shape[1]
    start, stop = first * weights.shape[1], (first + rows) * weights.shape[1]
    step_row(
        kind,
        hyper,
        gradient[:cells],
        slots.first.reshape(-1)[start:stop],
        slots.second.reshape(-1)[start:stop],
        weights.reshape(-1)[start:stop],
    )


@kernel
def held(kind, hyper, square, batch):
    """The factor of the gradient of a row with squared norm `square`; see `bound_rows`."""
    rate = hyper.rate / (1.0 - hyper.momentum) if kind in VELOCITY else hyper.rate
    moved = rate / batch * square
    return np.float32(FURTHEST / moved if moved > FURTHEST else 1.0)


@kernel
def squared_norm(x):
    """Sum of the squares of x[K]."""
    square = np.float32(0.0)
    for k in range(x.shape[0]):
        square += x[k] * x[k]
    return square


@kernel
def scale(fraction, grad):
    for b in range(grad.shape[0]):
        for h in range(grad.shape[1]):
            grad[b, h] *= np.float32(fraction)


@kernel
def bound_rows(kind, hyper, batch, x, grad):
    if kind not in BOUNDED:
        return
    for b in range(grad.shape[0]):
        fraction = held(kind, hyper, squared_norm(x[b]), batch)
        if fraction < 1.0:
            for h in range(grad.shape[1]):
                grad[b, h] *= fraction


@kernel
def scale_rows(kind, hyper, batch, x, grad, scaled):
    """scaled[B, H] = grad after `bound_rows`; times -rate if the optimizer is ADDITIVE.

    `scaled` may be `grad`. They may be some rows of the mean over `batch` rows.
    """
    for b in range(grad.shape[0]):
        fraction = np.float32(1.0)
        if kind in BOUNDED:
            fraction = held(kind, hyper, squared_norm(x[b]), batch)
        if kind in ADDITIVE:
            fraction *= np.float32(-hyper.rate)
        for h in range(grad.shape[1]):
            scaled[b, h] = fraction * grad[b, h]


@kernel
def bias_gradient(grad, out):
    for h in range(out.shape[0]):
        out[h] = 0.0
    for b in range(grad.shape[0]):
        for h in range(out.shape[0]):
            out[h] += grad[b, h]


@kernel
def activate_backward(kind, activated, grad, dropout=None):
    """`dropout`: that of `activated`[B, H], whose kept outputs are larger; None: there is none."""
    if dropout is not None:
        scale(factor(dropout.fraction), grad)
    if kind == LINEAR:
        return
    one = np.float32(1.0)
    for b in range(grad.shape[0]):
        for h in range(grad.shape[1]):
            a = activated[b, h]
            if kind == RELU:
                grad[b, h] = grad[b, h] if a > 0.0 else np.float32(0.0)
            elif kind == SIGMOID:
                grad[b, h] *= a * (one - a)
            elif kind == TANH:
                grad[b, h] *= one - a * a
            else:
                grad[b, h] *= selu_slope(a)


@kernel
def forget_not_finite(totals, values):
    if totals[SKIPPED] > 0.0:
        cells = values.reshape(-1)
        for i in range(cells.shape[0]):
            if not finite(cells[i]):
                cells[i] = 0.0
