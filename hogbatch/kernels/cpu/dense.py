"""Dense layers: products by BLAS (one thread), everything else as one pass over memory."""

import numpy as np

from hogbatch.jit import kernel
from hogbatch.kernels.contract import (
    ADAGRAD,
    ADAM,
    FURTHEST,
    LINEAR,
    MOMENTUM,
    RELU,
    SGD,
    SIGMOID,
    TANH,
)


@kernel
def gather(inputs, rows, out):
    features = inputs.dense.shape[1]
    for b in range(rows.shape[0]):
        for f in range(features):
            out[b, f] = inputs.dense[rows[b], f]
        for f in range(features, out.shape[1]):
            out[b, f] = 0.0


@kernel
def dense_forward(x, weights, bias, out):
    np.dot(x, weights, out)
    for b in range(out.shape[0]):
        for h in range(out.shape[1]):
            out[b, h] += bias[h]


@kernel
def dense_backward(grad, weights, out):
    np.dot(grad, weights.T, out)


@kernel
def weight_gradient(x, grad, out):
    np.dot(x.T, grad, out)


@kernel
def shrink_far(kind, hyper, square, batch, grad):
    """Bound one row's grad[H], `square` the squared norm of its inputs; see `bound_rows`."""
    rate = hyper.rate / (1.0 - hyper.momentum) if kind == MOMENTUM else hyper.rate
    moved = rate / batch * square
    if moved > FURTHEST:
        share = np.float32(FURTHEST / moved)
        for h in range(grad.shape[0]):
            grad[h] *= share


@kernel
def bound_rows(kind, hyper, x, grad):
    if kind != SGD and kind != MOMENTUM:
        return
    for b in range(grad.shape[0]):
        square = np.float32(0.0)
        for k in range(x.shape[1]):
            square += x[b, k] * x[b, k]
        shrink_far(kind, hyper, square, grad.shape[0], grad[b])


@kernel
def bias_gradient(grad, out):
    for h in range(out.shape[0]):
        out[h] = 0.0
    for b in range(grad.shape[0]):
        for h in range(out.shape[0]):
            out[h] += grad[b, h]


@kernel
def activate(kind, width, out):
    one = np.float32(1.0)
    for b in range(out.shape[0]):
        if kind == RELU:
            for h in range(width):
                out[b, h] = max(out[b, h], np.float32(0.0))
        elif kind == SIGMOID:
            for h in range(width):
                # exp of a negative number only: it cannot overflow
                small = np.exp(-abs(out[b, h]))
                out[b, h] = (one if out[b, h] >= 0.0 else small) / (one + small)
        elif kind == TANH:
            for h in range(width):
                out[b, h] = np.tanh(out[b, h])
        for h in range(width, out.shape[1]):
            out[b, h] = 0.0


@kernel
def activate_backward(kind, activated, grad):
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
            else:
                grad[b, h] *= one - a * a


# Hogwild: other threads and processes write `weights` at the same time, and no lock is taken.
# An update may be lost when two of them hit one cell together; SGD forgives that (Niu et al. 2011).
@kernel
def step_row(kind, hyper, gradient, first, second, weights):
    """One optimizer step on 1-D arrays of one length; see `contract.Kernels.step`."""
    rate, l2 = np.float32(hyper.rate), np.float32(hyper.l2)
    epsilon = np.float32(hyper.epsilon)
    if kind == SGD:
        for i in range(weights.shape[0]):
            weights[i] -= rate * (gradient[i] + l2 * weights[i])
    elif kind == MOMENTUM:
        keep = np.float32(hyper.momentum)
        for i in range(weights.shape[0]):
            m = keep * first[i] + (gradient[i] + l2 * weights[i])
            first[i] = m
            weights[i] -= rate * m
    elif kind == ADAGRAD:
        for i in range(weights.shape[0]):
            g = gradient[i] + l2 * weights[i]
            s = first[i] + g * g
            first[i] = s
            weights[i] -= rate * g / (np.sqrt(s) + epsilon)
    elif kind == ADAM:
        fresh1 = np.float32(1.0 - hyper.momentum)
        fresh2 = np.float32(1.0 - hyper.beta2)
        for i in range(weights.shape[0]):
            g = gradient[i] + l2 * weights[i]
            m = first[i] + fresh1 * (g - first[i])
            v = second[i] + fresh2 * (g * g - second[i])
            first[i] = m
            second[i] = v
            weights[i] -= rate * m / (np.sqrt(v) + epsilon)


@kernel
def step(kind, hyper, gradient, slots, weights):
    step_row(
        kind,
        hyper,
        gradient.reshape(-1),
        slots.first.reshape(-1),
        slots.second.reshape(-1),
        weights.reshape(-1),
    )
