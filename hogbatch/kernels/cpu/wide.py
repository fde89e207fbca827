"""The compiled loop over a network with an output-major output layer, all of which is computed.

The output layer is processed in blocks of outputs, whose weights are contiguous (docs/slide.md).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import inlined, kernel
from hogbatch.kernels.contract import Floats, Links
from hogbatch.kernels.cpu import dense, network
from hogbatch.kernels.cpu.brgemm import matrix as as_matrix, multiply, submatrix, transposed
from hogbatch.kernels.cpu.model import (
    ACTIVATION,
    BIAS,
    FAN_IN,
    FAN_OUT,
    WEIGHTS,
    corrected,
    max_values,
    vector,
    with_own_slots,
)
from hogbatch.kernels.cpu.tiles import ADD, STORE, Epilogue

BLOCK = 256  # outputs of a block


class Output(NamedTuple):
    """Memory of one thread for batches of B rows; matrices are flat."""

    scores: Floats  # [B, H]
    grad: Floats  # [B, H]
    gradient: Floats  # [BLOCK, K]
    bias: Floats  # [H]
    space: dense.BackwardScratch


@kernel
def output_for(model, batch):
    """Allocate for batches of `batch` rows."""
    layer = model.table.shape[0] - 1
    fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
    return Output(
        dense.aligned(batch * fan_out),
        dense.aligned(batch * fan_out),
        dense.aligned(BLOCK * fan_in),
        dense.aligned(fan_out),
        dense.backward_scratch(batch, fan_in),
    )


@kernel
def score(model, x, output):
    """scores[B, H] of x[B, K]; padding columns are zero, because their weights and biases are."""
    layer = model.table.shape[0] - 1
    fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
    weights = network.matrix(model.params, model.table[layer, WEIGHTS], fan_out, fan_in)
    bias = vector(model.params, model.table[layer, BIAS], fan_out)
    scores = network.matrix(output.scores, 0, x.shape[0], fan_out)
    dense.pass_all_down(x, weights, output.space, scores)
    for b in range(scores.shape[0]):
        for h in range(fan_out):
            scores[b, h] += bias[h]
    return scores


@kernel
def step_output(model, optimizer, hyper, x, grad, output, below):
    """below[B, K] = grad[B, H] @ weights before the step; then step weights and biases.

    The slots are the thread's own, `model.own_first` and `model.own_second`.
    """
    layer, batch = model.table.shape[0] - 1, x.shape[0]
    fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
    offset = model.table[layer, WEIGHTS]
    weights = network.matrix(model.params, offset, fan_out, fan_in)
    slots = network.slots_at(model.own_first, model.own_second, offset, fan_out, fan_in)
    below[:] = 0.0
    right, out = as_matrix(x), as_matrix(network.matrix(output.gradient, 0, BLOCK, fan_in))
    store = Epilogue(STORE, 0, 0.0)
    for first in range(0, fan_out, BLOCK):
        count = min(BLOCK, fan_out - first)
        block = submatrix(as_matrix(grad), 0, first)
        here = submatrix(as_matrix(weights), first, 0)
        multiply(batch, fan_in, count, block, here, as_matrix(below), Epilogue(ADD, 0, 0.0))
        dense.bound_rows(optimizer, hyper, batch, x, grad[:, first : first + count])
        multiply(count, fan_in, batch, transposed(block), right, out, store)
        dense.step_rows(optimizer, hyper, output.gradient, first, count, slots, weights)
    network.step_bias(
        model, layer, optimizer, hyper, grad, model.own_first, model.own_second, output.bias
    )


class WideSpace(NamedTuple):
    """Memory of one thread, and what a batch keeps from one stage to the next."""

    hidden: network.Workspace  # of all layers but the last
    links: Links
    number: NDArray[np.int64]  # as in `network.BatchSpace`
    output: Output


@kernel
def open_batches(model, inputs, labels, rows, size, head):
    """See `network.open_batches`."""
    table = model.table[: model.table.shape[0] - 1]
    return WideSpace(
        network.workspace(table, inputs.indptr.shape[0] > 0, size),
        network.links_for(head, max_values(inputs, rows, size)),
        np.zeros(1, np.int64),
        output_for(model, size),
    )


@inlined
def run_stages(model, inputs, labels, rows, lease, hyper, space, totals, first, stop, down):
    """Compute stages first : stop of a batch; see `hogbatch.kernels.cpu.loops`."""
    layers, size, kept = model.table.shape[0], rows.shape[0], space.hidden
    hidden = layers - 1
    x = network.matrix(kept.activations, kept.starts[hidden], size, model.table[hidden, FAN_IN])
    grad = network.matrix(space.output.grad, 0, size, model.table[hidden, FAN_OUT])
    if first < hidden:
        network.forward(model, first, min(stop, hidden), inputs, rows, kept, lease.dropout)
    if first <= hidden < stop:
        scores = score(model, x, space.output)
        network.differentiate_loss(model, labels, rows, lease, scores, grad, kept, totals)
        space.number[0] = model.steps[0]
    exact = corrected(lease.optimizer, hyper, space.number[0])
    if first <= layers < stop:
        own = with_own_slots(lease.optimizer, exact, lease.threads)
        below = network.matrix(kept.grads, kept.starts[hidden], size, x.shape[1])
        step_output(model, lease.optimizer, own, x, grad, space.output, below)
        dense.activate_backward(model.table[hidden - 1, ACTIVATION], x, below, lease.dropout)
    if stop > layers + 1:
        low, high = 2 * layers - stop, min(hidden, 2 * layers - first)
        network.backward(model, low, high, down, inputs, rows, lease, exact, space.links, kept)


@kernel
def train(model, inputs, labels, rows, lease, hyper, head, fence, totals):
    """Train as `network.train` does, with an output-major last layer above hidden layers."""
    size, stages = min(lease.batch_size, rows.shape[0]), 2 * model.table.shape[0]
    space = open_batches(model, inputs, labels, rows, size, head)
    for start in range(0, rows.shape[0], size):
        if fence[0] != lease.fence:
            break
        part = rows[start : min(start + size, rows.shape[0])]
        run_stages(model, inputs, labels, part, lease, hyper, space, totals, 0, stages, True)
