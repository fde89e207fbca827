"""The compiled loops one batch at a time, in two calls: gradients first, updates later.

`begin` computes the gradients of a batch with respect to the outputs of all layers, and returns
them: less memory than a layer's weights. `write` and `write_outputs` update the parameters from
them later, in place, when other batches may have changed them meanwhile. Begun and written at once,
a batch is computed to the bit as by `train` of its loop. Rehearsals (`hogbatch.rehearse`) use this.
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


class Gradients(NamedTuple):
    """What determines the update of all layers, but of an output-major one, by a batch."""

    hyper: Hyper  # with Adam's bias correction
    starts: NDArray[np.int64]  # see `Workspace`, also for `grads`
    activations: Floats  # see `Workspace`
    grads: Floats  # of each layer's outputs, before the activation
    stored: int  # values in the rows of the batch; 0 if the inputs are dense


class Slopes(NamedTuple):
    """What determines the update of a linear model by a batch."""

    hyper: Hyper
    slopes: Floats  # [B]
    stored: int


class WideOutputs(NamedTuple):
    """What determines the update of an output-major layer by a batch."""

    hyper: Hyper
    x: Floats  # [B, K]
    grad: Floats  # [B, H]


class DelayedLoop(NamedTuple):
    """Compiled functions for single batches.

    begin(model, inputs, labels, rows, lease, hyper, totals, ...) returns Gradients or Slopes, and
    if there is an output-major layer, a tuple of this and what `write_outputs` needs.
    write(model, inputs, rows, lease, begun, head, first, stop) updates layers first : stop, and
    write_outputs(model, lease, begun, ...) the output-major layer. The hashed loop has further
    arguments: its NeuronFinder and the HashedThread.
    """

    begin: Callable[..., Any]
    write: Callable[..., None]
    write_outputs: Callable[..., None] | None


def delayed_loop(name: Literal["dense", "linear", "wide", "hashed"]) -> DelayedLoop:
    """Return the functions for the loop of this name, see `CompiledLoop`."""
    if name == "hashed":
        from hogbatch.kernels.cpu.lsh import delayed  # 20 ms that other loops do not need

        return DelayedLoop(delayed.begin, write, delayed.write_outputs)
    if name == "linear":
        return DelayedLoop(begin_linear, write_linear, None)
    if name == "wide":
        return DelayedLoop(begin_wide, write, write_wide)
    return DelayedLoop(begin_dense, write, None)


@kernel
def gradients(model, layers, inputs, rows, hyper, grad, space):
    """Return the Gradients of the first `layers` layers, from grad[B, H] of the last of them."""
    size, grads = rows.shape[0], aligned(space.starts[layers + 1])
    matrix(grads, space.starts[layers], size, grad.shape[1])[:] = grad
    for layer in range(layers - 1, 0, -1):
        fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
        weights = matrix(model.params, model.table[layer, WEIGHTS], fan_in, fan_out)
        x = matrix(space.activations, space.starts[layer], size, fan_in)
        above = matrix(grads, space.starts[layer + 1], size, fan_out)
        below = matrix(grads, space.starts[layer], size, fan_in)
        pass_all_down(above, weights, space.dense, below)
        activate_backward(model.table[layer - 1, ACTIVATION], x, below)
    return Gradients(hyper, space.starts, space.activations, grads, max_values(inputs, rows, size))


@kernel
def begin_dense(model, inputs, labels, rows, lease, hyper, totals):
    """Begin a batch of the dense loop."""
    layers = model.table.shape[0]
    space = network.workspace(model.table, inputs.indptr.shape[0] > 0, rows.shape[0])
    grad, exact = network.differentiate(model, inputs, labels, rows, lease, hyper, space, totals)
    return gradients(model, layers, inputs, rows, exact, grad, space)


@kernel
def begin_wide(model, inputs, labels, rows, lease, hyper, totals):
    """Begin a batch of the wide loop."""
    hidden, size = model.table.shape[0] - 1, rows.shape[0]
    space = network.workspace(model.table[:hidden], inputs.indptr.shape[0] > 0, size)
    output = wide.output_for(model, size)
    x, grad, exact = wide.differentiate(
        model, inputs, labels, rows, lease, hyper, space, output, totals
    )
    below = matrix(space.grad, 0, size, x.shape[1])
    wide.pass_down(model, grad, below)
    activate_backward(model.table[hidden - 1, ACTIVATION], x, below)
    begun = gradients(model, hidden, inputs, rows, exact, below, space)
    return begun, WideOutputs(exact, x, grad)


@kernel
def begin_linear(model, inputs, labels, rows, lease, hyper, totals):
    """Begin a batch of the linear loop."""
    size = rows.shape[0]
    current = linear.Row(np.empty(1, np.float32), np.empty(1, np.float32))
    work = linear.LeaseRows(inputs, rows, np.empty(size, np.float32))
    weights = vector(model.params, model.table[0, WEIGHTS], model.table[0, FAN_IN])
    bias = model.params[model.table[0, BIAS]]
    linear.set_slopes(work, labels, current, 0, size, lease.loss, weights, bias, totals)
    model.steps[0] += 1
    exact = corrected(lease.optimizer, hyper, model.steps[0])
    totals[ROWS] += size
    totals[UPDATES] += 1.0
    return Slopes(exact, work.slopes, max_values(inputs, rows, size))


@kernel
def write(model, inputs, rows, lease, begun, head, first, stop):
    """Update layers first : stop, last to first; `head`[F] is `Links.head` of the thread."""
    sparse, size, optimizer = inputs.indptr.shape[0] > 0, rows.shape[0], lease.optimizer
    space = network.workspace(model.table[:stop], sparse, size)
    own = with_own_slots(optimizer, begun.hyper, lease.threads)
    for layer in range(stop - 1, first - 1, -1):
        fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
        grad = matrix(begun.grads, begun.starts[layer + 1], size, fan_out)
        if layer == 0 and sparse:
            links = network.links_for(head, begun.stored)
            hyper = begun.hyper
            network.step_inputs(model, inputs, rows, optimizer, hyper, grad, links, space.bias)
        else:
            x = matrix(begun.activations, begun.starts[layer], size, fan_in)
            used = inputs.dense.shape[1] if layer == 0 else fan_in
            below = matrix(space.grad_below, 0, size, 0)  # was computed when the batch began
            network.step_layer(model, layer, optimizer, own, x, used, grad, below, space)


@kernel
def write_wide(model, lease, begun):
    """Update the output layer of the wide loop."""
    size = begun.x.shape[0]
    output = wide.output_for(model, size)
    own = with_own_slots(lease.optimizer, begun.hyper, lease.threads)
    below = matrix(output.gradient, 0, size, 0)  # was computed when the batch began
    wide.step_output(model, lease.optimizer, own, begun.x, begun.grad, output, below)


@kernel
def write_linear(model, inputs, rows, lease, begun, head, first, stop):
    """Update a linear model, which is layer 0; `head`[F] belongs to the thread."""
    size, optimizer = rows.shape[0], lease.optimizer
    work = linear.LeaseRows(inputs, rows, begun.slopes)
    by_values = linear.steps_by_values(optimizer, begun.hyper, size)
    most = 0 if by_values else begun.stored
    sums = linear.FeatureGradients(head, np.empty(most, np.int32), np.empty(most, np.float32))
    weights = linear.cells_of(model, model.table[0, WEIGHTS], model.table[0, FAN_IN])
    linear.bound_slopes(optimizer, begun.hyper, work, 0, size)
    if by_values:
        linear.step_by_values(optimizer, begun.hyper, work, 0, size, weights)
    else:
        distinct = linear.sum_by_feature(work, 0, size, sums)
        linear.step_by_features(optimizer, begun.hyper, distinct, sums, weights)
    bias = linear.cells_of(model, model.table[0, BIAS], 1)
    linear.step_bias(optimizer, begun.hyper, begun.slopes, size, bias)
