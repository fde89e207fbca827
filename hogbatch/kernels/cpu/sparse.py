"""The input layer over CSR rows: only the weights of features that occur are read or written."""

import numpy as np

from hogbatch.jit import kernel
from hogbatch.kernels.contract import MOMENTUM, SGD
from hogbatch.kernels.cpu.dense import shrink_far, step_row


@kernel
def csr_forward(inputs, rows, weights, bias, out):
    width = out.shape[1]
    for b in range(rows.shape[0]):
        start, stop = inputs.indptr[rows[b]], inputs.indptr[rows[b] + 1]
        if width == 1:  # a linear model: keep the sum in a register
            score = bias[0]
            for n in range(start, stop):
                score += inputs.values[n] * weights[inputs.indices[n], 0]
            out[b, 0] = score
            continue
        for h in range(width):
            out[b, h] = bias[h]
        for n in range(start, stop):
            value, f = inputs.values[n], inputs.indices[n]
            for h in range(width):
                out[b, h] += value * weights[f, h]


@kernel
def csr_bound_rows(kind, hyper, inputs, rows, grad):
    if kind != SGD and kind != MOMENTUM:
        return
    for b in range(rows.shape[0]):
        square = np.float32(0.0)
        for n in range(inputs.indptr[rows[b]], inputs.indptr[rows[b] + 1]):
            square += inputs.values[n] * inputs.values[n]
        shrink_far(kind, hyper, square, grad.shape[0], grad[b])


@kernel
def link_occurrences(inputs, rows, links):
    """Chain the occurrences of each feature in the batch; return how many features occur."""
    distinct = 0
    n = 0
    for b in range(rows.shape[0]):
        for k in range(inputs.indptr[rows[b]], inputs.indptr[rows[b] + 1]):
            f = inputs.indices[k]
            if links.head[f] < 0:
                links.touched[distinct] = f
                distinct += 1
            links.following[n] = links.head[f]
            links.member[n] = b
            links.head[f] = n
            n += 1
    return distinct


@kernel
def csr_step(kind, hyper, inputs, rows, grad, links, slots, weights):
    starts = np.zeros(rows.shape[0] + 1, np.int64)  # where each row's occurrences begin
    for b in range(rows.shape[0]):
        starts[b + 1] = starts[b] + inputs.indptr[rows[b] + 1] - inputs.indptr[rows[b]]
    distinct = link_occurrences(inputs, rows, links)
    width = weights.shape[1]
    gradient = np.empty(width, np.float32)
    for t in range(distinct):
        f = links.touched[t]
        gradient[:] = 0.0
        n = links.head[f]
        while n >= 0:
            b = links.member[n]
            value = inputs.values[inputs.indptr[rows[b]] + n - starts[b]]
            for h in range(width):
                gradient[h] += value * grad[b, h]
            n = links.following[n]
        links.head[f] = -1
        if slots.first.shape[0] == 0:
            step_row(kind, hyper, gradient, gradient[:0], gradient[:0], weights[f])
        elif slots.second.shape[0] == 0:
            step_row(kind, hyper, gradient, slots.first[f], gradient[:0], weights[f])
        else:
            step_row(kind, hyper, gradient, slots.first[f], slots.second[f], weights[f])
