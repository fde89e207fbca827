"""The hashed loop one batch at a time, in two calls; see `kernels.cpu.delayed`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.contract import ACTIVE, ROWS, UPDATES, Floats, Hyper
from hogbatch.kernels.cpu.delayed import gradients
from hogbatch.kernels.cpu.dense import activate_backward, forget_not_finite
from hogbatch.kernels.cpu.losses import loss_gradient
from hogbatch.kernels.cpu.lsh import network
from hogbatch.kernels.cpu.lsh.neurons import gather_neurons, neuron_buffers, pass_down, score
from hogbatch.kernels.cpu.lsh.selection import clear_positions
from hogbatch.kernels.cpu.model import ACTIVATION, corrected
from hogbatch.kernels.cpu.network import forward, matrix


class ActiveOutputs(NamedTuple):
    """What determines the update of the active outputs by a batch."""

    hyper: Hyper
    x: Floats  # [B, K]
    grad: Floats  # [B, A rounded up]
    active: NDArray[np.int32]  # [A]; if it is empty, no layer is to be updated
    phase: int  # see `refresh_sketches`


@kernel
def begin(model, inputs, labels, rows, lease, hyper, totals, finder, thread):
    """Begin a batch of the hashed loop, with the steps of `network.train` down to `pass_down`."""
    hidden, size = model.table.shape[0] - 1, rows.shape[0]
    space = network.hashed_workspace(model, finder, inputs, labels, rows, size, thread.head)
    x = forward(model, hidden, inputs, rows, space.hidden)
    active = space.active[: network.find(finder, x, labels, rows, thread, space)]
    model.steps[0] += 1
    totals[ROWS] += size
    totals[UPDATES] += 1.0
    totals[ACTIVE] += active.shape[0]
    gather_neurons(model, active, space.neurons)
    scores = score(x, active.shape[0], space.neurons)
    grad = matrix(space.neurons.grad, 0, size, scores.shape[1])
    below = matrix(space.hidden.grad, 0, size, x.shape[1])
    if active.shape[0] > 0:
        own, order = network.by_column(labels, rows, thread.place, space), space.order[:size]
        loss_gradient(lease.loss, own, order, rows, active.shape[0], scores, grad, totals)
        forget_not_finite(totals, space.hidden.activations)
        pass_down(grad, space.neurons, below)
        activate_backward(model.table[hidden - 1, ACTIVATION], x, below)
        clear_positions(active, active.shape[0], thread.place)
    phase = model.steps[0]
    exact = corrected(lease.optimizer, hyper, phase)
    begun = gradients(model, hidden, inputs, rows, exact, below, space.hidden)
    return begun, ActiveOutputs(exact, x, grad, active, phase)


@kernel
def write_outputs(model, lease, begun, finder, thread):
    """Update the active outputs; `finder` and `thread` are those of `begin`."""
    active = begun.active
    for a in range(active.shape[0]):
        thread.place[active[a]] = a
    neurons = neuron_buffers(model, begun.x.shape[0], active.shape[0])
    optimizer, hyper, x, grad = lease.optimizer, begun.hyper, begun.x, begun.grad
    phase = begun.phase
    network.step_outputs(model, finder, optimizer, hyper, x, grad, active, phase, thread, neurons)
