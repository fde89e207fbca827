"""LSTM and GRU layers: the gates of all steps as products of small matrices.

The products with the inputs need no states, so they are one product for all steps of a batch; those
with the states are added to it, step by step (Georganas et al. 2020). Backward, the gradients of
the gates replace the gates, and those of the weights are one product each.

Inputs are [B, T, F], states and cells [B, T, H], gates [B, T, 4 H]; weights [F, G], recurrent
weights [H, G], biases [4 H]. Gates of LSTM are input, forget, candidate and output, G = 4 H. The
forget gate has a bias of 1 besides its own, so that an untrained layer remembers (Jozefowicz et al.
2015). Gates of GRU are candidate, reset, update and product, G = 3 H: the inputs are in the first
three, the states in the last three. Its cells are its states.
"""

from typing import NamedTuple

import numpy as np

from hogbatch.jit import kernel
from hogbatch.kernels.contract import Floats
from hogbatch.kernels.cpu.brgemm import matrix, multiply, submatrix, transpose, transposed
from hogbatch.kernels.cpu.elementary import ONE, sigmoid, tanh
from hogbatch.kernels.cpu.intrinsics import address
from hogbatch.kernels.cpu.tiles import ACTIVATE, ADD, STORE, Epilogue, Matrix


class RecurrentScratch(NamedTuple):
    """Memory of one thread for batches of up to B sequences."""

    gates: Floats  # [B, T, 4 H]
    cells: Floats  # [B, T, H]
    states: Floats  # [B, T, H]
    earlier: Floats  # [B, T, H]: the states of the steps before
    turned: Floats  # [G, max(F, H)]: transposed weights
    state: Floats  # [B, H]: the gradient of the states of a step
    cell: Floats  # [B, H]: that of its cells, or what GRU adds to that of its states
    none: Floats  # [H]: the cells before the first step, 0


@kernel
def step_matrix(array, step, first):
    """[B, n - first]: the values of one step of array[B, T, n], from `first` on."""
    steps, width = array.shape[1], array.shape[2]
    return Matrix(address(array) + 4 * (step * width + first), steps * width, 1)


@kernel
def run(x, weights, recurrent, bias, space):
    """Compute gates, cells and states of x[B, T, F]."""
    batch, steps, features = x.shape
    (units, wide), store = recurrent.shape, Epilogue(ACTIVATE, address(bias), -np.inf)
    every = Matrix(address(x), features, 1), Matrix(address(space.gates), 4 * units, 1)
    multiply(batch * steps, wide, features, every[0], matrix(weights), every[1], store)
    for t in range(steps):
        for b in range(batch):
            for h in range(wide, 4 * units):
                space.gates[b, t, h] = bias[h]
        if t > 0:
            before = step_matrix(space.states, t - 1, 0)
            gates = step_matrix(space.gates, t, 4 * units - wide)
            add = Epilogue(ADD, 0, 0.0)
            multiply(batch, wide, units, before, matrix(recurrent), gates, add)
        for b in range(batch):
            before = space.cells[b, t - 1] if t > 0 else space.none
            if wide == 4 * units:
                activate_lstm(space.gates[b, t], before, space.cells[b, t], space.states[b, t])
            else:
                activate_gru(space.gates[b, t], before, space.states[b, t])


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
def run_back(grad, first, recurrent, space):
    """Replace the gates by their gradients, from those of the states: grad[B, T - first, H]."""
    batch, (_, steps, units) = grad.shape[0], space.states.shape
    wide, turned = recurrent.shape[1], Matrix(address(space.turned), units, 1)
    transpose(units, wide, matrix(recurrent), turned)
    for b in range(batch):
        for h in range(units):
            space.state[b, h], space.cell[b, h] = 0.0, 0.0
    for t in range(steps - 1, -1, -1):
        for b in range(batch):
            if t >= first:
                for h in range(units):
                    space.state[b, h] += grad[b, t - first, h]
            before = space.cells[b, t - 1] if t > 0 else space.none
            state, cell = space.state[b], space.cell[b]
            if wide == 4 * units:
                differentiate_lstm(space.gates[b, t], before, space.cells[b, t], state, cell)
            else:
                differentiate_gru(space.gates[b, t], before, state, cell)
        if t > 0:
            gates = step_matrix(space.gates, t, 4 * units - wide)
            out, store = matrix(space.state), Epilogue(STORE, 0, 0.0)
            multiply(batch, units, wide, gates, turned, out, store)


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
def gradients(x, space, weights, recurrent, bias):
    """Set the gradients of all tensors, from those of the gates."""
    batch, steps, features = x.shape
    (units, wide), rows = recurrent.shape, batch * steps
    for b in range(batch):
        for h in range(units):
            space.earlier[b, 0, h] = 0.0
        for t in range(1, steps):
            for h in range(units):
                space.earlier[b, t, h] = space.states[b, t - 1, h]
    gates, store = Matrix(address(space.gates), 4 * units, 1), Epilogue(STORE, 0, 0.0)
    inputs = transposed(Matrix(address(x), features, 1))
    multiply(features, wide, rows, inputs, gates, matrix(weights), store)
    states = transposed(Matrix(address(space.earlier), units, 1))
    gates = submatrix(gates, 0, 4 * units - wide)
    multiply(units, wide, rows, states, gates, matrix(recurrent), store)
    for h in range(4 * units):
        bias[h] = 0.0
    for b in range(batch):
        for t in range(steps):
            for h in range(4 * units):
                bias[h] += space.gates[b, t, h]


@kernel
def pass_down(weights, space, below):
    """below[B, T, F] = the gradients of the inputs, from those of the gates."""
    batch, steps, features = below.shape
    wide, turned = weights.shape[1], Matrix(address(space.turned), features, 1)
    transpose(features, wide, matrix(weights), turned)
    gates = Matrix(address(space.gates), space.gates.shape[2], 1)
    out, store = Matrix(address(below), features, 1), Epilogue(STORE, 0, 0.0)
    multiply(batch * steps, features, wide, gates, turned, out, store)
