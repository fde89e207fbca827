"""CSR inputs: a batch is a list of row numbers of the whole set; no rows are copied."""

from typing import NamedTuple

import cupy
import numpy as np

from hogbatch.kernels.contract import BOUNDED
from hogbatch.kernels.gpu.launch import (
    WARP,
    gradient_repetitions,
    kernel,
    operand_kernel,
    over_batch,
    over_touched,
    rate_of,
)

_csr_forward = operand_kernel("sparse", "csr_forward")
_csr_bound_rows = operand_kernel("sparse", "csr_bound_rows")
_add_up = operand_kernel("sparse", "add_up")
_step_touched = kernel("sparse", "step_touched")


class SparseScratch(NamedTuple):
    """Scratch memory of `csr_step`, see sparse.cu."""

    head: cupy.ndarray  # int32[F], -1 between steps
    touched: cupy.ndarray  # int32[F]
    count: cupy.ndarray  # int32[1]: number of touched rows, known on the GPU only
    sums: cupy.ndarray  # float32[F, H], 0 between steps


def csr_forward(inputs, rows, weights, bias, activation, width, out):
    batch, stored = out.shape
    layer = weights, bias, activation, width, stored
    over_batch(_csr_forward[out.dtype.name], batch, stored, *inputs[1:], rows, batch, *layer, out)


def csr_bound_rows(kind, hyper, inputs, rows, grad):
    if kind in BOUNDED:
        batch, width = grad.shape
        bound = rate_of(hyper), gradient_repetitions(kind, hyper)
        csr = inputs.indptr, inputs.values, rows
        function = _csr_bound_rows[grad.dtype.name]
        over_batch(function, batch, WARP, *bound, *csr, batch, width, grad)


def csr_scratch(features, width):
    return SparseScratch(
        cupy.full(features, -1, np.int32),
        cupy.empty(features, np.int32),
        cupy.zeros(1, np.int32),
        cupy.zeros((features, width), np.float32),
    )


def csr_step(kind, hyper, inputs, rows, grad, scratch, slots, weights):
    head, touched, count, sums = scratch
    (features, width), batch = weights.shape, len(rows)
    count.fill(0)
    function, marks = _add_up[grad.dtype.name], (head, touched, count)
    over_batch(function, batch, width, *inputs[1:], rows, batch, width, grad, sums, *marks)
    optimizer = kind, rate_of(hyper), *map(float, hyper[1:])
    arrays = touched, count, width, sums, head, *slots, weights
    over_touched(_step_touched, features, width, *optimizer, *arrays)
