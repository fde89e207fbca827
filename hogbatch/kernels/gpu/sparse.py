"""CSR inputs: a batch is its row numbers into the whole set, which stays where it is."""

import cupy
import numpy as np

from hogbatch.kernels.contract import MOMENTUM, SGD
from hogbatch.kernels.gpu.launch import THREADS, kernel, over_cells, over_rows, reach

_csr_forward = kernel("sparse", "csr_forward")
_csr_bound_rows = kernel("sparse", "csr_bound_rows")
_find_touched = kernel("sparse", "find_touched")
_clear_touched = kernel("sparse", "clear_touched")
_add_up = kernel("sparse", "add_up")
_step_touched = kernel("sparse", "step_touched")


def csr_forward(inputs, rows, weights, bias, out):
    _, indptr, indices, values = inputs
    width = out.shape[1]
    over_cells(
        _csr_forward, out.size, indptr, indices, values, rows, out.size, width, weights, bias, out
    )


def csr_bound_rows(kind, hyper, inputs, rows, grad):
    if kind in (SGD, MOMENTUM):
        _, indptr, _, values = inputs
        batch, width = grad.shape
        rate = reach(kind, hyper)
        over_rows(_csr_bound_rows, batch, THREADS, rate, indptr, values, rows, batch, width, grad)


def csr_step(kind, hyper, inputs, rows, grad, links, slots, weights):
    """Takes as much memory as `weights` from the pool for its length; of `links`, `head` and
    `touched` are enough here."""
    _, indptr, indices, values = inputs
    features, width = weights.shape
    sums = cupy.empty_like(weights)
    found = cupy.zeros(1, np.int32)
    head, touched = links.head, links.touched
    cells = min(features, len(touched)) * width  # at most: how many were found only the GPU knows
    over_rows(_find_touched, len(rows), THREADS, indptr, indices, rows, head, touched, found)
    over_cells(_clear_touched, cells, touched, found, width, sums)
    over_rows(_add_up, len(rows), THREADS, indptr, indices, values, rows, width, grad, sums)
    over_cells(
        _step_touched,
        cells,
        kind,
        *map(float, hyper),
        touched,
        found,
        width,
        sums,
        head,
        *slots,
        weights,
    )
