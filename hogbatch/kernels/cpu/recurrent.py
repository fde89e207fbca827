"""LSTM and GRU layers: the gates of all steps as products of small matrices.

The products with the inputs need no states, so they are one product for all steps of a batch; those
with the states are added to it, step by step (Georganas et al. 2020). Backward, the gradients of
the gates replace the gates, and those of the weights are one product each.

Inputs are x[B, T, F]. Padding in front of sequences is not computed: the other N steps are packed,
those with number 0 of all sequences first, then those with number 1. The sequences with the least
padding are first, so a step continues the first of the sequences that the next one has.

Packed inputs are [N, F], gates [N, 4 H], states and cells [N + B, H], weights [F, G], recurrent
weights [H, G], biases [4 H]. Gates of LSTM are input, forget, candidate and output, G = 4 H. The
forget gate has a bias of 1 besides its own, so that an untrained layer remembers (Jozefowicz et al.
2015). Gates of GRU are candidate, reset, update and product, G = 3 H: the inputs are in the first
three, the states in the last three. Its cells are its states.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.contract import Floats
from hogbatch.kernels.cpu.brgemm import matrix, multiply, submatrix, transpose, transposed
from hogbatch.kernels.cpu.convolution import zeros_in_front
from hogbatch.kernels.cpu.elementary import ONE, sigmoid, tanh
from hogbatch.kernels.cpu.intrinsics import address
from hogbatch.kernels.cpu.tiles import ACTIVATE, ADD, STORE, Epilogue, Matrix


class RecurrentScratch(NamedTuple):
    """Memory of one thread for batches of up to B sequences; N is at most B T."""

    inputs: Floats  # [N, F], later their gradients
    gates: Floats  # [N, 4 H]
    cells: Floats  # [N + B, H]: those before each step; at the end those after the last one
    states: Floats  # [N + B, H]: the same
    turned: Floats  # [G, max(F, H)]: transposed weights
    state: Floats  # [B, H]: the gradient of the states of a step
    cell: Floats  # [B, H]: that of its cells, or what GRU adds to that of its states
    firsts: NDArray[np.int64]  # [B]: the steps of padding
    order: NDArray[np.int64]  # [B]: the sequences, those with the least padding first
    starts: NDArray[np.int64]  # [T + 1]: where the steps of each number begin; the last is N


@kernel
def pack(x, features, padded, space):
    """Pack the inputs x[B, T F]; zeros in front are padding if they are `padded`."""
    starts, firsts, count = space.starts, space.firsts, 0
    for b in range(x.shape[0]):
        firsts[b] = zeros_in_front(x[b], features) if padded else 0
    starts[0] = 0
    for t in range(starts.shape[0] - 1):
        for b in range(x.shape[0]):
            if firsts[b] == t:
                space.order[count] = b
                count += 1
        starts[t + 1] = starts[t] + count
        for n in range(count):
            values = x[space.order[n], t * features : (t + 1) * features]
            space.inputs[starts[t] + n] = values


@kernel
def unpack(packed, first, space, out):
    """out[B, n, width] = packed[N, width] of the last n steps, and 0 for padding.

    Those of step t begin with the number starts[t + first].
    """
    out[:] = 0.0
    begin = space.starts.shape[0] - 1 - out.shape[1]
    for t in range(out.shape[1]):
        for n in range(space.starts[begin + t + 1] - space.starts[begin + t]):
            out[space.order[n], t] = packed[space.starts[begin + t + first] + n]


@kernel
def run(weights, recurrent, bias, space, steps):
    """Compute gates, cells and states of the packed inputs."""
    (units, wide), store = recurrent.shape, Epilogue(ACTIVATE, address(bias), -np.inf)
    gates, cells, states, starts = space.gates, space.cells, space.states, space.starts
    inputs, rows, continued = matrix(space.inputs), matrix(gates), 0
    multiply(starts[steps], wide, weights.shape[0], inputs, matrix(weights), rows, store)
    for t in range(steps):
        begin, after = starts[t], starts[t + 1]
        cells[begin + continued : after] = 0.0
        states[begin + continued : after] = 0.0
        for n in range(begin, after):
            for h in range(wide, 4 * units):
                gates[n, h] = bias[h]
        before, add = submatrix(matrix(states), begin, 0), Epilogue(ADD, 0, 0.0)
        target = submatrix(rows, begin, 4 * units - wide)
        multiply(continued, wide, units, before, matrix(recurrent), target, add)
        continued = after - begin
        for n in range(continued):
            own, old = gates[begin + n], cells[begin + n]
            if wide == 4 * units:
                activate_lstm(own, old, cells[after + n], states[after + n])
            else:
                activate_gru(own, old, states[after + n])


@kernel
def activate_lstm(gates, before, cells, states):
    """Activate the gates [4 H] of a step, and set its cells [H] and states [H]."""
    units = cells.shape[0]
    i, f = gates[:units], gates[units : 2 * units]
    g, o = gates[2 * units : 3 * units], gates[3 * units :]
    for h in range(units):
        i[h] = sigmoid(i[h])
    for h in range(units):
        f[h] = sigmoid(f[h] + ONE)
    for h in range(units):
        g[h] = tanh(g[h])
    for h in range(units):
        o[h] = sigmoid(o[h])
    for h in range(units):
        cells[h] = f[h] * before[h] + i[h] * g[h]
    for h in range(units):
        states[h] = o[h] * tanh(cells[h])


@kernel
def activate_gru(gates, before, states):
    """Activate the gates [4 H] of a step, and set its states [H] from those `before`."""
    units = states.shape[0]
    n, r = gates[:units], gates[units : 2 * units]
    z, m = gates[2 * units : 3 * units], gates[3 * units :]
    for h in range(units):
        r[h] = sigmoid(r[h])
    for h in range(units):
        z[h] = sigmoid(z[h])
    for h in range(units):
        n[h] = tanh(n[h] + r[h] * m[h])
    for h in range(units):
        states[h] = n[h] + z[h] * (before[h] - n[h])


@kernel
def run_back(grad, recurrent, space, steps):
    """Replace the gates by their gradients, from those of the states: grad[B, T - first, H]."""
    (units, wide), turned = recurrent.shape, Matrix(address(space.turned), recurrent.shape[0], 1)
    transpose(units, wide, matrix(recurrent), turned)
    gates, cells, first = space.gates, space.cells, steps - grad.shape[1]
    space.state[:], space.cell[:] = 0.0, 0.0
    for t in range(steps - 1, -1, -1):
        begin, after = space.starts[t], space.starts[t + 1]
        for n in range(after - begin):
            state, cell = space.state[n], space.cell[n]
            if t >= first:
                given = grad[space.order[n], t - first]
                for h in range(units):
                    state[h] += given[h]
            own, old = gates[begin + n], cells[begin + n]
            if wide == 4 * units:
                differentiate_lstm(own, old, cells[after + n], state, cell)
            else:
                differentiate_gru(own, old, state, cell)
        continued = begin - space.starts[t - 1] if t > 0 else 0
        changes = submatrix(matrix(gates), begin, 4 * units - wide)
        out, store = matrix(space.state), Epilogue(STORE, 0, 0.0)
        multiply(continued, units, wide, changes, turned, out, store)


@kernel
def differentiate_lstm(gates, before, cells, state, cell):
    """Replace the gates [4 H] of a step by their gradients; `state` and `cell`: of its results.

    `cell` becomes the gradient of the cells [H] of the step before.
    """
    units = cells.shape[0]
    inputs, forgets = gates[:units], gates[units : 2 * units]
    candidates, outputs = gates[2 * units : 3 * units], gates[3 * units :]
    for h in range(units):
        i, f, g, o = inputs[h], forgets[h], candidates[h], outputs[h]
        seen = tanh(cells[h])
        change = cell[h] + state[h] * o * (ONE - seen * seen)
        inputs[h] = change * g * i * (ONE - i)
        forgets[h] = change * before[h] * f * (ONE - f)
        candidates[h] = change * i * (ONE - g * g)
        outputs[h] = state[h] * seen * o * (ONE - o)
        cell[h] = change * f


@kernel
def differentiate_gru(gates, before, state, cell):
    """Replace the gates [4 H] of a step by their gradients; `state` + `cell`: of its states.

    `cell` becomes the direct part of the gradient of the states [H] `before`.
    """
    units = state.shape[0]
    candidates, resets = gates[:units], gates[units : 2 * units]
    updates, products = gates[2 * units : 3 * units], gates[3 * units :]
    for h in range(units):
        n, r, z = candidates[h], resets[h], updates[h]
        total = state[h] + cell[h]
        change = total * (ONE - z) * (ONE - n * n)
        candidates[h] = change
        resets[h] = change * products[h] * r * (ONE - r)
        updates[h] = total * (before[h] - n) * z * (ONE - z)
        products[h] = change * r
        cell[h] = total * z


@kernel
def gradients(space, weights, recurrent, bias, steps):
    """Set the gradients of all tensors, from those of the gates."""
    (units, wide), count = recurrent.shape, space.starts[steps]
    gates, store = matrix(space.gates), Epilogue(STORE, 0, 0.0)
    inputs, states = transposed(matrix(space.inputs)), transposed(matrix(space.states))
    multiply(weights.shape[0], wide, count, inputs, gates, matrix(weights), store)
    gates = submatrix(gates, 0, 4 * units - wide)
    multiply(units, wide, count, states, gates, matrix(recurrent), store)
    bias[:] = 0.0
    for n in range(count):
        for h in range(4 * units):
            bias[h] += space.gates[n, h]


@kernel
def pass_down(weights, space, below):
    """below[B, T, F] = the gradients of the inputs, from those of the gates."""
    (features, wide), steps = weights.shape, below.shape[1]
    turned, out = Matrix(address(space.turned), features, 1), matrix(space.inputs)
    transpose(features, wide, matrix(weights), turned)
    gates, store = matrix(space.gates), Epilogue(STORE, 0, 0.0)
    multiply(space.starts[steps], features, wide, gates, turned, out, store)
    unpack(space.inputs, 0, space, below)
