"""The input layer over CSR rows: only the weights of features that occur are read or written."""

import numpy as np

from hogbatch.jit import kernel
from hogbatch.kernels.contract import BOUNDED, Links
from hogbatch.kernels.cpu.brgemm import address
from hogbatch.kernels.cpu.dense import activate_rest, floor_of, held
from hogbatch.kernels.cpu.rows import (
    MAX_VECTORS,
    Chains,
    Csr,
    Weights,
    forward_rows,
    step_touched,
)
from hogbatch.kernels.cpu.simd import WIDTH


@kernel
def csr_forward(inputs, rows, weights, bias, activation, width, out):
    csr_forward_above(inputs, rows, weights, bias, floor_of(activation), out)
    activate_rest(activation, width, out)


@kernel
def csr_forward_above(inputs, rows, weights, bias, floor, out):
    """out[B, H] = max(floor, X @ weights[F, H] + bias[H]); floor 0 is relu.

    NaN is kept, so that the loss detects it.
    """
    width = out.shape[1]
    csr = Csr(
        address(rows),
        rows.shape[0],
        address(inputs.indptr),
        address(inputs.indices),
        address(inputs.values),
    )
    panels = panels_of(width)
    for panel in range(panels):
        column, vectors = panel_of(panel, panels, width)
        forward_rows(
            vectors,
            width,
            csr,
            address(weights) + 4 * column,
            width,
            address(bias) + 4 * column,
            address(out) + 4 * column,
            floor,
        )


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
def csr_bound_rows(kind, hyper, inputs, rows, grad):
    if kind not in BOUNDED:
        return
    for b in range(rows.shape[0]):
        start, stop = inputs.indptr[rows[b]], inputs.indptr[rows[b] + 1]
        fraction = held(kind, hyper, square_of(inputs.values, start, stop), rows.shape[0])
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
    """Link the occurrences of each feature in the batch.

    Occurrence n belongs to values[shifts[links.member[n]] + n].
    """
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
    return Chains(
        address(links.touched),
        distinct,
        address(links.head),
        address(links.following),
        address(links.member),
        address(shifts),
        address(inputs.values),
    )


def csr_scratch(features, width):
    return np.full(features, -1, np.int32)


@kernel
def csr_step(kind, hyper, inputs, rows, grad, scratch, slots, weights):
    stored = 0
    for b in range(rows.shape[0]):
        stored += inputs.indptr[rows[b] + 1] - inputs.indptr[rows[b]]
    links = Links(
        scratch, np.empty(stored, np.int32), np.empty(stored, np.int32), np.empty(stored, np.int32)
    )
    step_linked(kind, hyper, inputs, rows, grad, links, slots, weights)


@kernel
def step_linked(kind, hyper, inputs, rows, grad, links, slots, weights):
    """`csr_step` with all its scratch in `links`, which has room for the batch."""
    shifts = np.empty(rows.shape[0], np.int64)
    chains = link_occurrences(inputs, rows, links, shifts)
    step_panels(kind, hyper, chains, shifts, grad, slots, weights)


@kernel
def step_panels(kind, hyper, chains, shifts, grad, slots, weights):
    """Step the touched rows; `shifts` is passed so that it outlives its address in `chains`."""
    width = weights.shape[1]
    panels = panels_of(width)
    for panel in range(panels):
        column, vectors = panel_of(panel, panels, width)
        arrays = Weights(
            address(weights) + 4 * column,
            address(slots.first) + 4 * column,
            address(slots.second) + 4 * column,
            address(grad) + 4 * column,
            width,
        )
        step_touched(vectors, width, kind, panel == panels - 1, hyper, chains, arrays)
