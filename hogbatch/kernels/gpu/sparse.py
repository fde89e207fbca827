"""CSR inputs: a batch is a list of row numbers of the whole set; no rows are copied."""

from typing import NamedTuple

import cupy
import numpy as np

from hogbatch.kernels.contract import BOUNDED
from hogbatch.kernels.gpu.launch import (
    THREADS,
    gradient_repetitions,
    kernel,
    over_cells,
    over_rows,
    rate_of,
)

_csr_forward = kernel("sparse", "csr_forward")
_csr_bound_rows = kernel("sparse", "csr_bound_rows")
_find_touched = kernel("sparse", "find_touched")
_clear_touched = kernel("sparse", "clear_touched")
_add_up = kernel("sparse", "add_up")
_step_touched = kernel("sparse", "step_touched")


class SparseScratch(NamedTuple):
    """Scratch memory of `csr_step`, see sparse.cu."""

    head: cupy.ndarray  # int32[F]
    touched: cupy.ndarray  # int32[F]
    count: cupy.ndarray  # int32[1]: number of touched rows, known on the GPU only
    sums: cupy.ndarray  # float32[F, H]


def csr_forward(inputs, rows, weights, bias, activation, width, out):
    batch, stored = out.shape
    layer = weights, bias, activation, width, stored
    over_rows(_csr_forward, batch, stored, *inputs[1:], rows, *layer, out)


def csr_bound_rows(kind, hyper, inputs, rows, grad):
    if kind in BOUNDED:
        batch, width = grad.shape
        bound = rate_of(hyper), gradient_repetitions(kind, hyper)
        csr = inputs.indptr, inputs.values, rows
        over_rows(_csr_bound_rows, batch, THREADS, *bound, *csr, batch, width, grad)


def csr_scratch(features, width):
    return SparseScratch(
        cupy.full(features, -1, np.int32),
        cupy.empty(features, np.int32),
        cupy.zeros(1, np.int32),
        cupy.empty((features, width), np.float32),
    )


def csr_step(kind, hyper, inputs, rows, grad, scratch, slots, weights):
    _, indptr, indices, values = inputs
    head, touched, count, sums = scratch
    width, batch = weights.shape[1], len(rows)
    count.fill(0)
    over_rows(_find_touched, batch, THREADS, indptr, indices, rows, head, touched, count)
    over_cells(_clear_touched, weights.size, touched, count, width, sums)
    over_rows(_add_up, batch, THREADS, indptr, indices, values, rows, width, grad, sums)
    over_cells(
        _step_touched,
        weights.size,
        *(kind, rate_of(hyper), *map(float, hyper[1:])),
        *(touched, count, width, sums, head, *slots, weights),
    )
