"""The compiled loops one batch at a time, in stages, between which other batches may be computed.

A batch of a network with L layers has 2L stages: the forward passes of layers 0 to L - 1, the last
one with the loss and the gradient of the scores, then the backward passes of layers L - 1 to 0. The
backward pass of a layer passes the gradient down with the weights as they are then, and updates
them in place. All stages at once compute a batch to the bit as `train` of its loop does.

With `read`, all gradients are computed at once, on one state of the model; the backward passes that
follow only update. Rehearsals (`hogbatch.simulate.rehearsal`) use both ways.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.contract import ROWS, UPDATES, Floats, Hyper
from hogbatch.kernels.cpu import linear, network, wide
from hogbatch.kernels.cpu.dense import activate_backward, aligned, pass_all_down
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
from hogbatch.kernels.cpu.network import matrix


class Intermediates(NamedTuple):
    """What a batch keeps from one stage to the next, for all layers but an output-major one."""

    hyper: Hyper  # without Adam's bias correction
    number: NDArray[np.int64]  # [1]: of the update, for the bias correction; set with the loss
    starts: NDArray[np.int64]  # see `Workspace`, also for `grads`
    activations: Floats  # see `Workspace`
    grads: Floats  # of each layer's outputs, before the activation
    stored: int  # values in the rows of the batch; 0 if the inputs are dense


class LinearIntermediates(NamedTuple):
    """What a batch of a linear model keeps."""

    hyper: Hyper
    number: NDArray[np.int64]  # [1]
    slopes: Floats  # [B]
    stored: int


class WideIntermediates(NamedTuple):
    """What a batch keeps if the last layer is output-major."""

    hidden: Intermediates
    grad: Floats  # [B * H]: of the last layer's scores


class StagedLoop(NamedTuple):
    """Compiled functions for single batches.

    open(model, inputs, labels, rows, hyper) allocates the intermediates of a batch;
    run(model, inputs, labels, rows, lease, totals, batch, head, first, stop, down) computes its
    stages first : stop. `down` is whether backward passes pass the gradient down: False after
    read(model, inputs, labels, rows, lease, totals, batch, head), which computes all gradients in
    place of the forward stages. `model` of the hashed loop are two arguments, with its
    NeuronFinder, and its `head` is the HashedThread.
    """

    open: Callable[..., Any]
    run: Callable[..., None]
    read: Callable[..., None]


def staged_loop(name: Literal["dense", "linear", "wide", "hashed"]) -> StagedLoop:
    """Return the functions for the loop of this name, see `CompiledLoop`."""
    if name == "hashed":
        from hogbatch.kernels.cpu.lsh import staged  # 20 ms that other loops do not need

        return StagedLoop(staged.open_batch, staged.run, staged.read)
    if name == "linear":
        return StagedLoop(open_linear, run_linear, read_linear)
    if name == "wide":
        return StagedLoop(open_wide, run_wide, read_wide)
    return StagedLoop(open_dense, run_dense, read_dense)


@kernel
def forward_only():
    """The arguments `first` and `down` of forward passes.

    As constants in a call, they would make Numba compile the called function again for them.
    """
    return np.int64(0), np.bool_(False)


@kernel
def intermediates(model, layers, inputs, rows, hyper):
    """Allocate the intermediates of the first `layers` layers for a batch, `rows`[B]."""
    size = rows.shape[0]
    starts = network.layer_starts(model.table[:layers], inputs.indptr.shape[0] > 0, size)
    return Intermediates(
        hyper,
        np.zeros(1, np.int64),
        starts,
        aligned(starts[layers + 1]),
        aligned(starts[layers + 1]),
        max_values(inputs, rows, size),
    )


@kernel
def pass_to_first(model, layers, rows, batch):
    """Compute the gradients of all layers below the last of the first `layers` layers."""
    size = rows.shape[0]
    space = network.workspace(model.table[:layers], True, size)
    for layer in range(layers - 1, 0, -1):
        fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
        weights = matrix(model.params, model.table[layer, WEIGHTS], fan_in, fan_out)
        x = matrix(batch.activations, batch.starts[layer], size, fan_in)
        above = matrix(batch.grads, batch.starts[layer + 1], size, fan_out)
        below = matrix(batch.grads, batch.starts[layer], size, fan_in)
        pass_all_down(above, weights, space.dense, below)
        activate_backward(model.table[layer - 1, ACTIVATION], x, below)


@kernel
def update_layers(model, inputs, rows, lease, batch, head, first, stop, down):
    """Backward passes of layers first : stop, last to first; `head`[F] is `Links.head`."""
    sparse, size, optimizer = inputs.indptr.shape[0] > 0, rows.shape[0], lease.optimizer
    space = network.workspace(model.table[:stop], sparse, size)
    hyper = corrected(optimizer, batch.hyper, batch.number[0])
    own = with_own_slots(optimizer, hyper, lease.threads)
    for layer in range(stop - 1, first - 1, -1):
        fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
        grad = matrix(batch.grads, batch.starts[layer + 1], size, fan_out)
        if layer == 0 and sparse:
            links = network.links_for(head, batch.stored)
            network.step_inputs(model, inputs, rows, optimizer, hyper, grad, links, space.bias)
        else:
            x = matrix(batch.activations, batch.starts[layer], size, fan_in)
            used = inputs.dense.shape[1] if layer == 0 else fan_in
            passed = fan_in if down and layer > 0 else 0
            below = matrix(batch.grads, batch.starts[layer], size, passed)
            network.step_layer(model, layer, optimizer, own, x, used, grad, below, space)
            activate_backward(model.table[max(layer - 1, 0), ACTIVATION], x, below)


@kernel
def open_dense(model, inputs, labels, rows, hyper):
    return intermediates(model, model.table.shape[0], inputs, rows, hyper)


@kernel
def run_dense(model, inputs, labels, rows, lease, totals, batch, head, first, stop, down):
    """Stages of a batch of the dense loop."""
    layers = model.table.shape[0]
    if first < layers:
        scores = network.forward_layers(model, first, min(stop, layers), inputs, rows, batch)
        if stop >= layers:
            grad = matrix(batch.grads, batch.starts[layers], scores.shape[0], scores.shape[1])
            network.differentiate_loss(model, labels, rows, lease, scores, grad, batch, totals)
            batch.number[0] = model.steps[0]
    if stop > layers:
        low, high = 2 * layers - stop, min(layers, 2 * layers - first)
        update_layers(model, inputs, rows, lease, batch, head, low, high, down)


@kernel
def read_dense(model, inputs, labels, rows, lease, totals, batch, head):
    """All gradients of a batch of the dense loop."""
    layers = model.table.shape[0]
    first, down = forward_only()
    run_dense(model, inputs, labels, rows, lease, totals, batch, head, first, layers, down)
    pass_to_first(model, layers, rows, batch)


@kernel
def open_wide(model, inputs, labels, rows, hyper):
    layers = model.table.shape[0]
    return WideIntermediates(
        intermediates(model, layers - 1, inputs, rows, hyper),
        aligned(rows.shape[0] * model.table[layers - 1, FAN_OUT]),
    )


@kernel
def run_wide(model, inputs, labels, rows, lease, totals, batch, head, first, stop, down):
    """Stages of a batch of the wide loop."""
    layers, size = model.table.shape[0], rows.shape[0]
    hidden, kept = layers - 1, batch.hidden
    x = matrix(kept.activations, kept.starts[hidden], size, model.table[hidden, FAN_IN])
    grad = matrix(batch.grad, 0, size, model.table[hidden, FAN_OUT])
    if first < hidden:
        network.forward_layers(model, first, min(stop, hidden), inputs, rows, kept)
    if first <= hidden < stop:
        scores = wide.score(model, x, wide.output_for(model, size))
        network.differentiate_loss(model, labels, rows, lease, scores, grad, kept, totals)
        kept.number[0] = model.steps[0]
    if first <= layers < stop:
        hyper = corrected(lease.optimizer, kept.hyper, kept.number[0])
        own = with_own_slots(lease.optimizer, hyper, lease.threads)
        output, passed = wide.output_for(model, size), x.shape[1] if down else 0
        below = matrix(kept.grads, kept.starts[hidden], size, passed)
        wide.step_output(model, lease.optimizer, own, x, grad, output, below)
        activate_backward(model.table[hidden - 1, ACTIVATION], x, below)
    if stop > layers + 1:
        low, high = 2 * layers - stop, min(hidden, 2 * layers - first)
        update_layers(model, inputs, rows, lease, kept, head, low, high, down)


@kernel
def read_wide(model, inputs, labels, rows, lease, totals, batch, head):
    """All gradients of a batch of the wide loop."""
    layers, size = model.table.shape[0], rows.shape[0]
    hidden, kept = layers - 1, batch.hidden
    first, down = forward_only()
    run_wide(model, inputs, labels, rows, lease, totals, batch, head, first, layers, down)
    x = matrix(kept.activations, kept.starts[hidden], size, model.table[hidden, FAN_IN])
    below = matrix(kept.grads, kept.starts[hidden], size, x.shape[1])
    wide.pass_down(model, matrix(batch.grad, 0, size, model.table[hidden, FAN_OUT]), below)
    activate_backward(model.table[hidden - 1, ACTIVATION], x, below)
    pass_to_first(model, hidden, rows, kept)


@kernel
def open_linear(model, inputs, labels, rows, hyper):
    size = rows.shape[0]
    slopes, stored = np.empty(size, np.float32), max_values(inputs, rows, size)
    return LinearIntermediates(hyper, np.zeros(1, np.int64), slopes, stored)


@kernel
def run_linear(model, inputs, labels, rows, lease, totals, batch, head, first, stop, down):
    """Stages of a batch of the linear loop: slopes, then the update."""
    size, optimizer = rows.shape[0], lease.optimizer
    work = linear.LeaseRows(inputs, rows, batch.slopes)
    if first == 0:
        current = linear.Row(np.empty(1, np.float32), np.empty(1, np.float32))
        weights = vector(model.params, model.table[0, WEIGHTS], model.table[0, FAN_IN])
        bias = model.params[model.table[0, BIAS]]
        linear.set_slopes(work, labels, current, 0, size, lease.loss, weights, bias, totals)
        model.steps[0] += 1
        batch.number[0] = model.steps[0]
        totals[ROWS] += size
        totals[UPDATES] += 1.0
    if stop == 2:
        hyper = corrected(optimizer, batch.hyper, batch.number[0])
        by_values = linear.steps_by_values(optimizer, hyper, size)
        most = 0 if by_values else batch.stored
        sums = linear.FeatureGradients(head, np.empty(most, np.int32), np.empty(most, np.float32))
        cells = linear.cells_of(model, model.table[0, WEIGHTS], model.table[0, FAN_IN])
        linear.bound_slopes(optimizer, hyper, work, 0, size)
        if by_values:
            linear.step_by_values(optimizer, hyper, work, 0, size, cells)
        else:
            distinct = linear.sum_by_feature(work, 0, size, sums)
            linear.step_by_features(optimizer, hyper, distinct, sums, cells)
        cell = linear.cells_of(model, model.table[0, BIAS], 1)
        linear.step_bias(optimizer, hyper, batch.slopes, size, cell)


@kernel
def read_linear(model, inputs, labels, rows, lease, totals, batch, head):
    (first, down), layers = forward_only(), model.table.shape[0]
    run_linear(model, inputs, labels, rows, lease, totals, batch, head, first, layers, down)
