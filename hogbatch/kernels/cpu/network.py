"""The dense loop: the compiled training loop for networks of any number of dense layers.

The algorithm is that of the interpreted `hogbatch.kernels.executor`, operation by operation.
Updates are written directly to the shared parameters; between two batches only the fence word is
read. The functions that all loops have are described in `hogbatch.kernels.cpu.loops`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import inlined, kernel
from hogbatch.kernels.contract import ADDITIVE, ROWS, UPDATES, Floats, Links, Slots
from hogbatch.kernels.cpu import dense
from hogbatch.kernels.cpu.dropout import drop, key_of
from hogbatch.kernels.cpu.losses import loss_and_metrics, loss_gradient, store_scores
from hogbatch.kernels.cpu.model import (
    ACTIVATION,
    BIAS,
    FAN_IN,
    FAN_OUT,
    WEIGHTS,
    WIDTH,
    BatchSettings as BatchSettings,
    ModelView as ModelView,
    corrected,
    max_values,
    vector,
    with_own_slots,
    without_decay,
)
from hogbatch.kernels.cpu.rules import step_row
from hogbatch.kernels.cpu.sparse import csr_bound_rows, csr_forward, step_linked


class Workspace(NamedTuple):
    """Memory of one thread for batches of up to B rows."""

    starts: NDArray[np.int64]  # [layers + 1]: offset of each layer's output in the next two
    activations: Floats  # the input (if dense), then the output of each layer
    grads: Floats  # of each layer's outputs, before its activation
    bias: Floats  # [widest]
    dense: dense.BackwardScratch


@kernel
def workspace(table, sparse, size):
    """Allocate for batches of `size` rows."""
    layers = table.shape[0]
    starts = layer_starts(table, sparse, size)
    widest = table[0, FAN_IN] if not sparse else 1
    for layer in range(layers):
        widest = max(widest, table[layer, FAN_OUT])
    return Workspace(
        starts,
        dense.aligned(starts[layers + 1]),
        dense.aligned(starts[layers + 1]),
        dense.aligned(widest),
        dense.backward_scratch(size, widest),
    )


@kernel
def links_for(head, stored):
    """Links for batches of up to `stored` values; `head`[F] belongs to the thread."""
    return Links(
        head, np.empty(stored, np.int32), np.empty(stored, np.int32), np.empty(stored, np.int32)
    )


@kernel
def layer_starts(table, sparse, size):
    """Return `Workspace.starts`, and the end, for batches of `size` rows."""
    layers = table.shape[0]
    starts = np.zeros(layers + 2, np.int64)
    starts[1] = on_a_line(size * (table[0, FAN_IN] if not sparse else 1))
    for layer in range(layers):
        starts[layer + 2] = starts[layer + 1] + on_a_line(size * table[layer, FAN_OUT])
    return starts


@kernel
def on_a_line(size):
    """Round `size` floats up to whole cache lines."""
    return -(-size // 16) * 16


@kernel
def matrix(flat, offset, rows, columns):
    """Return flat[offset:] as [rows, columns]; [0, 0] if `flat` is empty."""
    if flat.shape[0] == 0:
        return flat.reshape(0, 0)
    return flat[offset : offset + rows * columns].reshape(rows, columns)


@kernel
def slots_at(first, second, offset, rows, columns):
    """Return the slots of the tensor at `offset`."""
    return Slots(matrix(first, offset, rows, columns), matrix(second, offset, rows, columns))


@kernel
def forward(model, first, stop, inputs, rows, space, dropout):
    """Return outputs[B, H] of layer `stop` - 1, from the outputs of layer `first` - 1 in `space`.

    All outputs stay in `space`, and so do dense inputs; those of no rows are there already.
    `dropout`: of hidden layers; None: no output is left out.
    """
    size = rows.shape[0]
    sparse = inputs.indptr.shape[0] > 0
    width = 1 if first == 0 and sparse else model.table[first, FAN_IN]
    x = matrix(space.activations, space.starts[first], size, width)
    if first == 0 and not sparse and inputs.dense.shape[0] > 0:
        dense.gather(inputs, rows, x)
    for layer in range(first, stop):
        fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
        weights = matrix(model.params, model.table[layer, WEIGHTS], fan_in, fan_out)
        bias = vector(model.params, model.table[layer, BIAS], fan_out)
        out = matrix(space.activations, space.starts[layer + 1], size, fan_out)
        kind, width = model.table[layer, ACTIVATION], model.table[layer, WIDTH]
        if layer == 0 and sparse:
            csr_forward(inputs, rows, weights, bias, kind, width, out)
        else:
            used = inputs.dense.shape[1] if layer == 0 else fan_in
            dense.dense_layer(x, used, weights, bias, kind, width, out)
        if dropout is not None and layer < model.table.shape[0] - 1:
            key = key_of(dropout.seed, model.steps[0] + 1)
            drop(dropout.fraction, key, layer, rows, width, out)
        x = out
    return x


@kernel
def step_bias(model, layer, optimizer, hyper, grad, first, second, scratch):
    """Update the bias of `layer`, without weight decay; `first` and `second`[P] are its slots."""
    offset, fan_out = model.table[layer, BIAS], model.table[layer, FAN_OUT]
    gradient = scratch[:fan_out]
    dense.bias_gradient(grad, gradient)
    bias, plain = vector(model.params, offset, fan_out), without_decay(hyper)
    first, second = vector(first, offset, fan_out), vector(second, offset, fan_out)
    step_row(optimizer, plain, gradient, first, second, bias)


@inlined
def backward(model, first, stop, down, inputs, rows, lease, hyper, links, space):
    """Update layers first : stop, last to first, from the gradient of the last one's outputs.

    With `down`, each layer first passes the gradient down, with its weights before the update;
    without it, `pass_to_first` has computed all gradients.
    """
    sparse, size, optimizer = inputs.indptr.shape[0] > 0, rows.shape[0], lease.optimizer
    own = with_own_slots(optimizer, hyper, lease.threads)
    for layer in range(stop - 1, first - 1, -1):
        fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
        grad = matrix(space.grads, space.starts[layer + 1], size, fan_out)
        if layer == 0 and sparse:
            step_inputs(model, inputs, rows, optimizer, hyper, grad, links, space.bias)
        else:
            x = matrix(space.activations, space.starts[layer], size, fan_in)
            used = inputs.dense.shape[1] if layer == 0 else fan_in
            passed = fan_in if down and layer > 0 else 0
            below = matrix(space.grads, space.starts[layer], size, passed)
            step_layer(model, layer, optimizer, own, x, used, grad, below, space)
            kind = model.table[max(layer - 1, 0), ACTIVATION]
            dense.activate_backward(kind, x, below, lease.dropout)


@kernel
def pass_to_first(model, layers, rows, space, dropout):
    """Compute the gradients of all layers below the last of the first `layers` layers."""
    size = rows.shape[0]
    for layer in range(layers - 1, 0, -1):
        fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
        weights = matrix(model.params, model.table[layer, WEIGHTS], fan_in, fan_out)
        x = matrix(space.activations, space.starts[layer], size, fan_in)
        above = matrix(space.grads, space.starts[layer + 1], size, fan_out)
        below = matrix(space.grads, space.starts[layer], size, fan_in)
        dense.pass_all_down(above, weights, space.dense, below)
        dense.activate_backward(model.table[layer - 1, ACTIVATION], x, below, dropout)


@inlined
def step_layer(model, layer, optimizer, hyper, x, used, grad, below, space):
    """Update a dense layer from x[B, K], of which `used` columns can be nonzero, and grad[B, H].

    below[B, K] = grad @ weights.T from the weights before the update; below[B, 0]: not needed. Both
    are computed block by block of the weights. The slots are the thread's own, and `hyper` is a
    result of `with_own_slots`.
    """
    fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
    offset = model.table[layer, WEIGHTS]
    weights = matrix(model.params, offset, fan_in, fan_out)
    scaled = matrix(space.dense.scaled, np.int64(0), grad.shape[0], fan_out)  # no literal type
    slots = slots_at(model.own_first, model.own_second, offset, fan_in, fan_out)
    dense.scale_rows(optimizer, hyper, grad.shape[0], x, grad, scaled)
    packed, product = dense.pack(grad, space.dense)  # not needed by the first layer, but cheap
    for first in range(0, used, dense.BLOCK_ROWS):
        rows = min(dense.BLOCK_ROWS, used - first)
        if below.shape[1] > 0:
            dense.pass_down(grad, packed, product, weights, first, rows, below)
        dense.update_block(optimizer, hyper, x, scaled, slots, weights, first, rows, space.dense)
    step_scaled_bias(model, layer, optimizer, hyper, scaled, space.bias)


@inlined
def step_inputs(model, inputs, rows, optimizer, hyper, grad, links, scratch):
    """Update a sparse first layer from grad[B, H]; `scratch` has room for H floats.

    Its slots are those that all threads share.
    """
    fan_in, fan_out = model.table[0, FAN_IN], model.table[0, FAN_OUT]
    offset = model.table[0, WEIGHTS]
    weights = matrix(model.params, offset, fan_in, fan_out)
    slots = slots_at(model.first, model.second, offset, fan_in, fan_out)
    csr_bound_rows(optimizer, hyper, rows.shape[0], inputs, rows, grad)
    step_linked(optimizer, hyper, inputs, rows, grad, links, slots, weights)
    first = np.int64(0)  # no literal type
    step_bias(model, first, optimizer, hyper, grad, model.first, model.second, scratch)


@inlined
def step_scaled_bias(model, layer, optimizer, hyper, scaled, scratch):
    """`step_bias` with a gradient that `scale_rows` has scaled; `scratch` has room for H floats."""
    if optimizer not in ADDITIVE:
        first, second = model.own_first, model.own_second
        step_bias(model, layer, optimizer, hyper, scaled, first, second, scratch)
        return
    fan_out = model.table[layer, FAN_OUT]
    change = scratch[:fan_out]
    dense.bias_gradient(scaled, change)
    bias = vector(model.params, model.table[layer, BIAS], fan_out)
    for h in range(fan_out):
        bias[h] += change[h]


@inlined
def differentiate_loss(model, labels, rows, lease, scores, grad, space, totals):
    """grad[B, H] = d loss / d scores[B, H], and count an update."""
    width = model.table[model.table.shape[0] - 1, WIDTH]
    loss_gradient(lease.loss, labels, rows, rows, width, scores, grad, totals)
    dense.forget_not_finite(totals, space.activations)
    model.steps[0] += 1  # racy like the weights; only `corrected` reads it
    totals[ROWS] += rows.shape[0]
    totals[UPDATES] += 1.0


class BatchSpace(NamedTuple):
    """The arrays of a batch from one stage to the next."""

    hidden: Workspace
    links: Links
    number: NDArray[np.int64]  # [1]: of the update, for `corrected`; set with the loss


@kernel
def open_batches(model, inputs, labels, rows, size, head):
    """Allocate for batches of `size` rows of `rows`; `head`[F] is `Links.head` of this thread."""
    space = workspace(model.table, inputs.indptr.shape[0] > 0, size)
    return BatchSpace(space, links_for(head, max_values(inputs, rows, size)), np.zeros(1, np.int64))


@kernel
def run_stages(model, inputs, labels, rows, lease, hyper, space, totals, first, stop, down):
    """Compute stages first : stop of a batch; see `hogbatch.kernels.cpu.loops`."""
    layers, kept = model.table.shape[0], space.hidden
    if first < layers:
        scores = forward(model, first, min(stop, layers), inputs, rows, kept, lease.dropout)
        if stop >= layers:
            grad = matrix(kept.grads, kept.starts[layers], scores.shape[0], scores.shape[1])
            differentiate_loss(model, labels, rows, lease, scores, grad, kept, totals)
            space.number[0] = model.steps[0]
    if stop > layers:
        exact = corrected(lease.optimizer, hyper, space.number[0])
        low, high = 2 * layers - stop, min(layers, 2 * layers - first)
        backward(model, low, high, down, inputs, rows, lease, exact, space.links, kept)


@kernel
def read(model, inputs, labels, rows, lease, hyper, space, totals):
    """Compute all gradients of a batch."""
    first, layers, down = np.int64(0), model.table.shape[0], np.bool_(False)  # no literal types
    run_stages(model, inputs, labels, rows, lease, hyper, space, totals, first, layers, down)
    pass_to_first(model, layers, rows, space.hidden, lease.dropout)


@kernel
def train(model, inputs, labels, rows, lease, hyper, head, fence, totals):
    """Train on `rows`[B...] in batches of lease.batch_size; add to `totals`.

    `head`[F] is `Links.head` of this thread. Stops between two batches when `fence`[0] is no longer
    lease.fence; totals[ROWS] counts the rows done. The stages are those of `run_stages`, a call of
    which would take a microsecond.
    """
    sparse, size = inputs.indptr.shape[0] > 0, min(lease.batch_size, rows.shape[0])
    first, layers, down = np.int64(0), model.table.shape[0], np.bool_(True)
    space = workspace(model.table, sparse, size)
    links = links_for(head, max_values(inputs, rows, size))
    for start in range(0, rows.shape[0], size):
        if fence[0] != lease.fence:
            break
        part = rows[start : min(start + size, rows.shape[0])]
        scores = forward(model, first, layers, inputs, part, space, lease.dropout)
        grad = matrix(space.grads, space.starts[layers], scores.shape[0], scores.shape[1])
        differentiate_loss(model, labels, part, lease, scores, grad, space, totals)
        exact = corrected(lease.optimizer, hyper, model.steps[0])
        backward(model, first, layers, down, inputs, part, lease, exact, links, space)


@kernel
def evaluate(model, inputs, labels, rows, lease, fence, totals, stored):
    """Add the losses and metrics of `rows` to `totals`, and store their scores.

    `stored` is a `contract.RowScores`. The model is not changed.
    """
    sparse, size = inputs.indptr.shape[0] > 0, min(lease.batch_size, rows.shape[0])
    first, layers = np.int64(0), model.table.shape[0]
    space, width = workspace(model.table, sparse, size), model.table[layers - 1, WIDTH]
    for start in range(0, rows.shape[0], size):
        if fence[0] != lease.fence:
            break
        part = rows[start : min(start + size, rows.shape[0])]
        scores = forward(model, first, layers, inputs, part, space, None)
        loss_and_metrics(lease.loss, labels, part, width, scores, totals)
        store_scores(part, width, scores, stored)
        totals[ROWS] += part.shape[0]
