"""The hashed loop one batch at a time, in stages; see `kernels.cpu.staged`.

As in the loop, the weights of the active outputs are copied once, with the forward pass of the
output layer, and the gradient is passed down with this copy. The update is in place.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.contract import ACTIVE, ROWS, UPDATES, Floats
from hogbatch.kernels.cpu.dense import activate_backward, aligned, forget_not_finite
from hogbatch.kernels.cpu.losses import loss_gradient
from hogbatch.kernels.cpu.lsh import network
from hogbatch.kernels.cpu.lsh.neurons import (
    gather_neurons,
    neuron_buffers,
    pass_down,
    score,
    stored,
)
from hogbatch.kernels.cpu.lsh.selection import clear_positions
from hogbatch.kernels.cpu.model import ACTIVATION, FAN_IN, corrected
from hogbatch.kernels.cpu.network import forward_layers, matrix
from hogbatch.kernels.cpu.staged import (
    Intermediates,
    forward_only,
    intermediates,
    pass_to_first,
    update_layers,
)


class HashedIntermediates(NamedTuple):
    """What a batch keeps; of its active outputs, A at most."""

    hidden: Intermediates
    active: NDArray[np.int32]  # [A]
    count: NDArray[np.int64]  # [1]: of `active`; if it is 0, no layer is to be updated
    grad: Floats  # [B * A rounded up]


@kernel
def open_batch(model, finder, inputs, labels, rows, hyper):
    hidden, size = model.table.shape[0] - 1, rows.shape[0]
    most = network.max_active(finder, network.max_labels(labels, rows, size))
    return HashedIntermediates(
        intermediates(model, hidden, inputs, rows, hyper),
        np.empty(most, np.int32),
        np.zeros(1, np.int64),
        aligned(size * stored(most)),
    )


@kernel
def score_active(model, finder, inputs, labels, rows, lease, totals, batch, thread):
    """Forward pass of the active outputs, loss and gradients, as in `network.train`."""
    hidden, size, kept = model.table.shape[0] - 1, rows.shape[0], batch.hidden
    space = network.hashed_workspace(model, finder, inputs, labels, rows, size, thread.head)
    x = matrix(kept.activations, kept.starts[hidden], size, model.table[hidden, FAN_IN])
    active = space.active[: network.find(finder, x, labels, rows, thread, space)]
    count = batch.count[0] = active.shape[0]
    batch.active[:count] = active
    model.steps[0] += 1
    kept.number[0] = model.steps[0]
    totals[ROWS] += size
    totals[UPDATES] += 1.0
    totals[ACTIVE] += count
    if count == 0:
        return
    gather_neurons(model, active, space.neurons)
    scores = score(x, count, space.neurons)
    grad = matrix(batch.grad, 0, size, scores.shape[1])
    own, order = network.by_column(labels, rows, thread.place, space), space.order[:size]
    loss_gradient(lease.loss, own, order, rows, count, scores, grad, totals)
    forget_not_finite(totals, kept.activations)
    below = matrix(kept.grads, kept.starts[hidden], size, x.shape[1])
    pass_down(grad, space.neurons, below)
    activate_backward(model.table[hidden - 1, ACTIVATION], x, below)
    clear_positions(active, count, thread.place)


@kernel
def update_active(model, finder, rows, lease, batch, thread):
    """Update the active outputs."""
    hidden, size, kept = model.table.shape[0] - 1, rows.shape[0], batch.hidden
    active, optimizer, phase = batch.active[: batch.count[0]], lease.optimizer, kept.number[0]
    for a in range(active.shape[0]):
        thread.place[active[a]] = a
    neurons = neuron_buffers(model, size, active.shape[0])
    hyper = corrected(optimizer, kept.hyper, phase)
    x = matrix(kept.activations, kept.starts[hidden], size, model.table[hidden, FAN_IN])
    grad = matrix(batch.grad, 0, size, stored(active.shape[0]))
    network.step_outputs(model, finder, optimizer, hyper, x, grad, active, phase, thread, neurons)


@kernel
def run(model, finder, inputs, labels, rows, lease, totals, batch, thread, first, stop, down):
    """Stages of a batch of the hashed loop."""
    layers, kept = model.table.shape[0], batch.hidden
    hidden = layers - 1
    if first < hidden:
        forward_layers(model, first, min(stop, hidden), inputs, rows, kept)
    if first <= hidden < stop:
        score_active(model, finder, inputs, labels, rows, lease, totals, batch, thread)
    if batch.count[0] == 0:
        return
    if first <= layers < stop:
        update_active(model, finder, rows, lease, batch, thread)
    if stop > layers + 1:
        low, high = 2 * layers - stop, min(hidden, 2 * layers - first)
        update_layers(model, inputs, rows, lease, kept, thread.head, low, high, down)


@kernel
def read(model, finder, inputs, labels, rows, lease, totals, batch, thread):
    """All gradients of a batch of the hashed loop."""
    layers = model.table.shape[0]
    first, down = forward_only()
    run(model, finder, inputs, labels, rows, lease, totals, batch, thread, first, layers, down)
    if batch.count[0] > 0:
        pass_to_first(model, layers - 1, rows, batch.hidden)
