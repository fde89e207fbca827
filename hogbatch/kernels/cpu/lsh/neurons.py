"""Scores, gradients and updates of the active outputs of a layer, packed contiguously."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import inlined, kernel
from hogbatch.kernels.contract import LINEAR, Floats
from hogbatch.kernels.cpu import dense
from hogbatch.kernels.cpu.intrinsics import address, prefetch_line
from hogbatch.kernels.cpu.linear import cells_of
from hogbatch.kernels.cpu.lsh.hashing import hash_rows
from hogbatch.kernels.cpu.lsh.sketches import WORDS
from hogbatch.kernels.cpu.model import BIAS, FAN_IN, FAN_OUT, WEIGHTS, vector, without_decay
from hogbatch.kernels.cpu.network import matrix, slots_at
from hogbatch.kernels.cpu.rows import LINE
from hogbatch.kernels.cpu.rules import step_cell
from hogbatch.kernels.cpu.sparse import step_panels

HASH_BLOCK = 192  # outputs hashed together: as many as stay in the L1 and L2 caches
REFRESH_INTERVAL = 4  # one in 4 active outputs is sketched again after its update
PREFETCH_DISTANCE = 8  # outputs by which weights are prefetched


class NeuronBuffers(NamedTuple):
    """Buffers of one thread for batches of B rows and up to A active outputs; matrices are flat."""

    weights: Floats  # [A, K]
    gradient: Floats  # [A, K]
    bias: Floats  # [A]
    bias_gradient: Floats  # [A]
    scores: Floats  # [B, A]
    grad: Floats  # [B, A]
    zero_bias: Floats  # [K], zeros
    space: dense.BackwardScratch
    # For the update kernel of sparse inputs, output `a` is a feature with value 1 in row `a` only.
    ends: NDArray[np.int32]  # [A], -1: see `contract.Links.following`
    members: NDArray[np.int32]  # [A]: 0, 1, 2, ...
    shifts: NDArray[np.int64]  # [A], zeros
    ones: Floats  # [A]
    row_sketches: NDArray[np.int32]  # [A / REFRESH_INTERVAL + 1, WORDS]


@inlined
def neuron_buffers(model, batch, max_active):
    """Allocate for batches of `batch` rows and `max_active` active outputs."""
    fan_in, max_active = model.table[model.table.shape[0] - 1, FAN_IN], stored(max_active)
    zero_bias = dense.aligned(fan_in)
    zero_bias[:] = 0.0
    return NeuronBuffers(
        dense.aligned(max_active * fan_in),
        dense.aligned(max_active * fan_in),
        dense.aligned(max_active),
        dense.aligned(max_active),
        dense.aligned(batch * max_active),
        dense.aligned(batch * max_active),
        zero_bias,
        dense.backward_scratch(batch, fan_in),
        np.full(max_active, -1, np.int32),
        np.arange(max_active).astype(np.int32),
        np.zeros(max_active, np.int64),
        np.ones(max_active, np.float32),
        np.empty((max_active // REFRESH_INTERVAL + 1, WORDS), np.int32),
    )


@kernel
def stored(count):
    """Stored columns for `count` active outputs: rounded up to whole cache lines."""
    return -(-count // LINE) * LINE


@kernel
def gather_neurons(model, active, neurons):
    """Copy weights and biases of active[A] into contiguous buffers."""
    layer = model.table.shape[0] - 1
    fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
    weights = matrix(model.params, model.table[layer, WEIGHTS], fan_out, fan_in)
    bias = vector(model.params, model.table[layer, BIAS], fan_out)
    count, row = active.shape[0], 4 * fan_in
    gathered = matrix(neurons.weights, 0, stored(count), fan_in)
    for a in range(count):
        ahead = address(weights) + row * active[min(a + PREFETCH_DISTANCE, count - 1)]
        for line in range(0, row, 4 * LINE):
            prefetch_line(ahead + line)
        neuron = active[a]
        for k in range(fan_in):
            gathered[a, k] = weights[neuron, k]
        neurons.bias[a] = bias[neuron]
    gathered[count:] = 0.0
    neurons.bias[count : stored(count)] = 0.0


@inlined
def score(x, count, neurons):
    """scores[B, A] of x[B, K] for the gathered outputs; columns from `count` on are zero."""
    batch, fan_in = x.shape
    scores = matrix(neurons.scores, 0, batch, stored(count))
    dense.pass_all_down(x, matrix(neurons.weights, 0, stored(count), fan_in), neurons.space, scores)
    for b in range(batch):
        for a in range(scores.shape[1]):
            scores[b, a] += neurons.bias[a]
    return scores


@inlined
def pass_down(grad, neurons, below):
    """below[B, K] = grad[B, A] @ the gathered weights."""
    active, fan_in = grad.shape[1], below.shape[1]
    weights = matrix(neurons.weights, 0, active, fan_in)
    linear = np.int64(LINEAR)  # no literal type
    dense.dense_layer(grad, active, weights, neurons.zero_bias, linear, fan_in, below)


@kernel
def step_neurons(model, optimizer, hyper, x, grad, active, column, neurons):
    """Update weights and biases of active[A] from x[B, K] and grad[B, A]; reset column to -1.

    `column`[H] is the column of each active output. Inactive outputs are not read: momentum, Adam
    and weight decay do not change them, as in `csr_step` for features that do not occur.
    """
    layer = model.table.shape[0] - 1
    fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
    dense.bound_rows(optimizer, hyper, x.shape[0], x, grad)
    dense.bias_gradient(grad, neurons.bias_gradient[: grad.shape[1]])
    plain = without_decay(hyper)
    biases = cells_of(model, model.table[layer, BIAS], fan_out)
    for a in range(active.shape[0]):  # weight decay is never applied to them
        step_cell(optimizer, plain, neurons.bias_gradient[a], biases, active[a])
    gradient = matrix(neurons.gradient, 0, grad.shape[1], fan_in)
    dense.transposed_product(grad, x, gradient)
    chains = (
        address(active),
        active.shape[0],
        address(column),
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
    """Sketch the current weights of every REFRESH_INTERVAL-th of active[A], starting at `phase`.

    Competing outputs are active often, so their sketches stay recent. With sketches that are a few
    hundred updates old, half of the best 20 outputs are no longer found.
    """
    layer = model.table.shape[0] - 1
    fan_in, fan_out = model.table[layer, FAN_IN], model.table[layer, FAN_OUT]
    weights = matrix(model.params, model.table[layer, WEIGHTS], fan_out, fan_in)
    count = (active.shape[0] - phase + REFRESH_INTERVAL - 1) // REFRESH_INTERVAL
    packed = matrix(neurons.weights, 0, count, fan_in)
    chosen = active[phase::REFRESH_INTERVAL]
    for n in range(count):
        for k in range(fan_in):
            packed[n, k] = weights[chosen[n], k]
    sketch(sketches, chosen, packed, neurons.row_sketches[:count])


@inlined
def sketch(sketches, ids, packed, row_sketches):
    """Sketch packed[n, K], the weights of the outputs ids[n]; row_sketches[n, WORDS] is scratch."""
    hash_rows(sketches.functions, packed, row_sketches)
    for n in range(ids.shape[0]):
        sketches.lengths[ids[n]] = np.sqrt(dense.squared_norm(packed[n]))
        for w in range(row_sketches.shape[1]):
            sketches.neurons[ids[n], w] = row_sketches[n, w]


@kernel
def hash_neurons(functions, sketches, weights, ids, changed, codes):
    """Compute codes[id], the bucket numbers of weights[id], and its sketch, for all `ids`.

    changed[id] is set to 0 before the weights are read, so an output that another thread updates
    meanwhile is marked again.
    """
    size = max(1, min(HASH_BLOCK, ids.shape[0]))
    packed = np.empty((size, weights.shape[1]), np.float32)
    new_codes = np.empty((size, codes.shape[1]), np.int32)
    row_sketches = np.empty((size, sketches.neurons.shape[1]), np.int32)
    for start in range(0, ids.shape[0], size):
        count = min(size, ids.shape[0] - start)
        for n in range(count):
            neuron = ids[start + n]
            changed[neuron] = 0
            for k in range(weights.shape[1]):
                packed[n, k] = weights[neuron, k]
        hash_rows(functions, packed[:count], new_codes[:count])
        sketch(sketches, ids[start : start + count], packed[:count], row_sketches[:count])
        for n in range(count):
            for t in range(codes.shape[1]):
                codes[ids[start + n], t] = new_codes[n, t]
