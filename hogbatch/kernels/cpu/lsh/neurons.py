"""The active neurons of an output layer, side by side: scores, gradients, and their step."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.contract import LINEAR, Floats, Hyper
from hogbatch.kernels.cpu.brgemm import address
from hogbatch.kernels.cpu.dense import (
    BackwardScratch,
    aligned,
    backward_scratch,
    bias_gradient,
    bound_rows,
    dense_layer,
    pass_all_down,
    squared_norm,
    weight_gradient,
)
from hogbatch.kernels.cpu.dots import fetch_line
from hogbatch.kernels.cpu.lsh.hashing import hash_rows
from hogbatch.kernels.cpu.lsh.sketches import WORDS
from hogbatch.kernels.cpu.model import BIAS, FAN_IN, FAN_OUT, WEIGHTS, vector
from hogbatch.kernels.cpu.network import matrix, slots_at
from hogbatch.kernels.cpu.rows import LINE, Chains
from hogbatch.kernels.cpu.rules import step_row
from hogbatch.kernels.cpu.sparse import step_panels

HASHED_TOGETHER = 192  # neurons: as many as stay in the nearest caches
REFRESHED = 4  # one in so many active neurons is sketched anew after its step
NEURONS_AHEAD = 8  # whose weights are on their way while one is copied


class Neurons(NamedTuple):
    """Memory of one thread for batches of B rows and up to A active neurons; matrices are flat."""

    weights: Floats  # [A, K]
    gradient: Floats  # [A, K]
    bias: Floats  # [A]
    bias_gradient: Floats  # [A]
    first: Floats  # [A]: the slots of the biases
    second: Floats  # [A]
    scores: Floats  # [B, A]
    grad: Floats  # [B, A]
    nothing: Floats  # [K], zeros
    space: BackwardScratch
    # To the step that sparse inputs take, neuron `a` is a feature that row `a` alone has, as 1.
    ends: NDArray[np.int32]  # [A], -1: see `contract.Links.following`
    members: NDArray[np.int32]  # [A]: 0, 1, 2, ...
    shifts: NDArray[np.int64]  # [A], zeros
    ones: Floats  # [A]
    marks: NDArray[np.int32]  # [A / REFRESHED + 1, WORDS]


@kernel
def neurons_for(model, batch, most):
    """Allocate for batches of `batch` rows and `most` active neurons."""
    fan_in, most = model.table[model.table.shape[0] - 1, FAN_IN], stored(most)
    nothing = aligned(fan_in)
    nothing[:] = 0.0
    return Neurons(
        aligned(most * fan_in),
        aligned(most * fan_in),
        aligned(most),
        aligned(most),
        aligned(most),
        aligned(most),
        aligned(batch * most),
        aligned(batch * most),
        nothing,
        backward_scratch(batch, fan_in),
        np.full(most, -1, np.int32),
        np.arange(most).astype(np.int32),
        np.zeros(most, np.int64),
        np.ones(most, np.float32),
        np.empty((most // REFRESHED + 1, WORDS), np.int32),
    )


@kernel
def stored(count):
    """Columns for `count` active neurons: whole vectors."""
    return -(-count // LINE) * LINE


@kernel
def gather_neurons(model, active, neurons):
    """Copy weights and biases of active[A] together."""
    layer = model.table.shape[0] - 1
    fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
    weights = matrix(model.params, model.table[layer, WEIGHTS], fan_out, fan_in)
    bias = vector(model.params, model.table[layer, BIAS], fan_out)
    count, row = active.shape[0], 4 * fan_in
    gathered = matrix(neurons.weights, 0, stored(count), fan_in)
    for a in range(count):
        ahead = address(weights) + row * active[min(a + NEURONS_AHEAD, count - 1)]
        for line in range(0, row, 4 * LINE):
            fetch_line(ahead + line)
        neuron = active[a]
        for k in range(fan_in):
            gathered[a, k] = weights[neuron, k]
        neurons.bias[a] = bias[neuron]
    gathered[count:] = 0.0
    neurons.bias[count : stored(count)] = 0.0


@kernel
def score(x, count, neurons):
    """scores[B, A], of x[B, K] by the neurons gathered; columns from `count` on are zero."""
    batch, fan_in = x.shape
    scores = matrix(neurons.scores, 0, batch, stored(count))
    pass_all_down(x, matrix(neurons.weights, 0, stored(count), fan_in), neurons.space, scores)
    for b in range(batch):
        for a in range(scores.shape[1]):
            scores[b, a] += neurons.bias[a]
    return scores


@kernel
def pass_down(grad, neurons, below):
    """below[B, K] = grad[B, A] @ the weights gathered."""
    active, fan_in = grad.shape[1], below.shape[1]
    weights = matrix(neurons.weights, 0, active, fan_in)
    dense_layer(grad, active, weights, neurons.nothing, LINEAR, fan_in, below)


@kernel
def step_neurons(model, optimizer, hyper, x, grad, active, place, neurons):
    """Step weights and biases of active[A] by x[B, K] and grad[B, A]; place[neuron] becomes -1.

    `place`[H] is the column of each active neuron. Others are not even read: momentum, Adam and
    weight decay leave them alone, as `csr_step` does with the features that do not occur.
    """
    layer = model.table.shape[0] - 1
    fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
    bound_rows(optimizer, hyper, x.shape[0], x, grad)
    step_biases(model, optimizer, hyper, grad, active, neurons)
    gradient = matrix(neurons.gradient, 0, grad.shape[1], fan_in)
    weight_gradient(grad, x, gradient)
    chains = Chains(
        address(active),
        active.shape[0],
        address(place),
        address(neurons.ends),
        address(neurons.members),
        address(neurons.shifts),
        address(neurons.ones),
    )
    offset = model.table[layer, WEIGHTS]
    weights = matrix(model.params, offset, fan_out, fan_in)
    slots = slots_at(model.first, model.second, offset, fan_out, fan_in)
    step_panels(optimizer, hyper, chains, neurons.shifts, gradient, slots, weights)


@kernel
def refresh_sketches(model, sketches, active, phase, neurons):
    """Sketch every REFRESHED-th of active[A], from number `phase` on, as it is now.

    What competes is active time and again, so its sketch is never old; of a sketch some hundred
    updates old, half of the best 20 neurons are not found any more.
    """
    layer = model.table.shape[0] - 1
    fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
    weights = matrix(model.params, model.table[layer, WEIGHTS], fan_out, fan_in)
    count = (active.shape[0] - phase + REFRESHED - 1) // REFRESHED
    near = matrix(neurons.weights, 0, count, fan_in)
    marks = neurons.marks[:count]
    for n in range(count):
        neuron = active[phase + n * REFRESHED]
        for k in range(fan_in):
            near[n, k] = weights[neuron, k]
    hash_rows(sketches.functions, near, marks)
    for n in range(count):
        neuron = active[phase + n * REFRESHED]
        sketches.lengths[neuron] = np.sqrt(squared_norm(near[n]))
        for w in range(marks.shape[1]):
            sketches.neurons[neuron, w] = marks[n, w]


@kernel
def step_biases(model, optimizer, hyper, grad, active, neurons):
    """Step the biases of active[A]; they are never decayed."""
    layer, count = model.table.shape[0] - 1, active.shape[0]
    offset, fan_out = model.table[layer, BIAS], model.table[layer, FAN_OUT]
    bias_gradient(grad, neurons.bias_gradient[: grad.shape[1]])
    plain = Hyper(hyper.rate, 0.0, hyper.momentum, hyper.beta2, hyper.epsilon)
    bias = vector(model.params, offset, fan_out)
    first, second = vector(model.first, offset, fan_out), vector(model.second, offset, fan_out)
    near_first, near_second = (
        neurons.first[: min(count, first.shape[0])],
        neurons.second[: min(count, second.shape[0])],
    )
    near = neurons.bias[:count]
    pick(active, bias, near)
    pick(active, first, near_first)
    pick(active, second, near_second)
    step_row(optimizer, plain, neurons.bias_gradient[:count], near_first, near_second, near)
    put_back(active, near, bias)
    put_back(active, near_first, first)
    put_back(active, near_second, second)


@kernel
def pick(active, cells, near):
    """near[a] = cells[active[a]]; nothing if there are no cells."""
    for a in range(near.shape[0]):
        near[a] = cells[active[a]]


@kernel
def put_back(active, near, cells):
    for a in range(near.shape[0]):
        cells[active[a]] = near[a]


@kernel
def mark(active, changed):
    """Note that active[A] have changed; only then, because `hash_neurons` may be reading them."""
    for a in range(active.shape[0]):
        changed[active[a]] = 1


@kernel
def hash_neurons(functions, sketches, weights, ids, changed, codes):
    """codes[id] = the bucket numbers of weights[id], its sketch, and changed[id] = 0, of `ids`.

    A neuron that is stepped meanwhile is marked again: the mark goes before the weights are read.
    """
    size = max(1, min(HASHED_TOGETHER, ids.shape[0]))
    near = np.empty((size, weights.shape[1]), np.float32)
    found = np.empty((size, codes.shape[1]), np.int32)
    marks = np.empty((size, sketches.neurons.shape[1]), np.int32)
    for start in range(0, ids.shape[0], size):
        count = min(size, ids.shape[0] - start)
        for n in range(count):
            neuron = ids[start + n]
            changed[neuron] = 0
            for k in range(weights.shape[1]):
                near[n, k] = weights[neuron, k]
        hash_rows(functions, near[:count], found[:count])
        hash_rows(sketches.functions, near[:count], marks[:count])
        for n in range(count):
            sketches.lengths[ids[start + n]] = np.sqrt(squared_norm(near[n]))
            for w in range(marks.shape[1]):
                sketches.neurons[ids[start + n], w] = marks[n, w]
            for t in range(codes.shape[1]):
                codes[ids[start + n], t] = found[n, t]
