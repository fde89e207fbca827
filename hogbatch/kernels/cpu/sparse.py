"""The input layer over CSR rows: only the weights of features that occur are read or written."""

import numpy as np

from hogbatch.jit import inlined, kernel
from hogbatch.kernels.contract import BOUNDED
from hogbatch.kernels.cpu.dense import activate_rest, floor_of, held
from hogbatch.kernels.cpu.intrinsics import address
from hogbatch.kernels.cpu.rows import MAX_VECTORS, forward_rows, step_touched
from hogbatch.kernels.cpu.rules import numbers_of
from hogbatch.kernels.cpu.simd import WIDTH


@kernel
def csr_forward(inputs, rows, weights, bias, activation, width, out):
    """out[B, H] = f(X @ weights[F, H] + bias[H]) with X the CSR inputs of `rows`, zero from column
    `width` on.
    """
    stored, floor = out.shape[1], floor_of(activation)
    indptr, indices, values = (
        address(inputs.indptr),
        address(inputs.indices),
        address(inputs.values),
    )
    csr = (address(rows), rows.shape[0], indptr, indices, values)
    panels = panels_of(stored)
    for panel in range(panels):
        column, vectors = panel_of(panel, panels, stored)
        first, shift = address(weights) + 4 * column, address(bias) + 4 * column
        to = address(out) + 4 * column
        forward_rows((vectors, stored, *csr, first, stored, shift, to, floor))
    activate_rest(activation, width, out)


@kernel
def panels_of(width):
    """The number of panels of `width` columns; below WIDTH, one panel with fewer lanes."""
    return max(1, -(-width // (WIDTH * MAX_VECTORS)))


@kernel
def panel_of(panel, panels, width):
    """First column and number of vectors of a panel; all panels are about as wide."""
    vectors = max(1, width // WIDTH)
    begin = vectors * panel // panels
    return begin * WIDTH, vectors * (panel + 1) // panels - begin


@kernel
def csr_bound_rows(kind, hyper, batch, inputs, rows, grad):
    """`bound_rows` with x the CSR inputs of `rows`, of a batch of `batch` rows."""
    if kind not in BOUNDED:
        return
    for b in range(rows.shape[0]):
        start, stop = inputs.indptr[rows[b]], inputs.indptr[rows[b] + 1]
        fraction = held(kind, hyper, square_of(inputs.values, start, stop), batch)
        if fraction < 1.0:
            for h in range(grad.shape[1]):
                grad[b, h] *= fraction


@kernel
def square_of(values, start, stop):
    """Sum of the squares of values[start:stop], without a slice, which costs as much as a row."""
    square = np.float32(0.0)
    for n in range(start, stop):
        square += values[n] * values[n]
    return square


@kernel
def link_occurrences(inputs, rows, links, shifts):
    """Link the occurrences of each feature in the batch; return arguments of `step_touched`."""
    distinct = 0
    n = 0
    for b in range(rows.shape[0]):
        start, stop = inputs.indptr[rows[b]], inputs.indptr[rows[b] + 1]
        shifts[b] = start - n
        for k in range(start, stop):
            f = inputs.indices[k]
            previous = links.head[f]
            links.touched[distinct] = f
            distinct += previous < 0  # else the next feature overwrites it
            links.following[n] = previous
            links.member[n] = b
            links.head[f] = n
            n += 1
    return (
        address(links.touched),
        distinct,
        address(links.head),
        address(links.following),
        address(links.member),
        address(shifts),
        address(inputs.values),
    )


@inlined
def step_linked(kind, hyper, inputs, rows, grad, links, slots, weights):
    """`reference.Kernels.csr_step` with its scratch in `links`, which has room for the batch."""
    shifts = np.empty(rows.shape[0], np.int64)
    chains = link_occurrences(inputs, rows, links, shifts)
    step_panels(kind, hyper, chains, shifts, grad, slots, weights)


@kernel
def step_panels(kind, hyper, chains, shifts, grad, slots, weights):
    """Step the touched rows; `shifts` is passed so that it outlives its address in `chains`."""
    width, n = weights.shape[1], numbers_of(hyper)
    numbers = (n.rate, n.l2, n.momentum, n.fresh_first, n.fresh_second, n.epsilon)
    panels = panels_of(width)
    for panel in range(panels):
        column, vectors = panel_of(panel, panels, width)
        arrays = (
            address(weights) + 4 * column,
            address(slots.first) + 4 * column,
            address(slots.second) + 4 * column,
            address(grad) + 4 * column,
            width,
        )
        step_touched((vectors, kind, width, panel == panels - 1, *chains, *arrays, *numbers))
