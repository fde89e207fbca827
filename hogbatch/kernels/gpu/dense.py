"""Dense layers and dense updates, except the matrix products: one kernel launch each."""

import cupy
import numpy as np

from hogbatch.kernels import dropout
from hogbatch.kernels.contract import BOUNDED, LINEAR
from hogbatch.kernels.gpu.launch import (
    RESIDENT_BLOCKS,
    THREADS,
    WARP,
    columns_of_a_block,
    gradient_repetitions,
    kernel,
    multiprocessors,
    optimizer_arguments,
    over_cells,
    over_rows,
    rate_of,
)
from hogbatch.kernels.gpu.reference import DeviceKernels

BOUND_LAYERS = 32  # as in dense.cu
_BOUND_LAYER = np.dtype([("x", "u8"), ("grad", "u8"), ("fan_in", "i8"), ("fan_out", "i8")])
_BOUND_LAYERS = np.dtype([("layers", _BOUND_LAYER, BOUND_LAYERS)])  # CuPy passes one by value
NARROW = 8  # outputs of a narrow layer, as in dense.cu
PACKET_BYTES = 16  # as in common.cuh


def add_bias_and_activate(bias, activation, width, out):
    """out[B, H] = activation(out + bias[H]); columns from `width` on become zero."""
    stored, function = out.shape[1], kernel("dense", "add_bias_and_activate", out)
    packets = -(-out.nbytes // PACKET_BYTES)
    over_cells(function, packets, bias, activation, width, out.size, stored, out)


def _bound(rate, repetitions, batch, x, grads):
    layers = np.zeros(1, _BOUND_LAYERS)
    for n, (inputs, grad) in enumerate(zip(x, grads, strict=True)):
        layers["layers"][0, n] = inputs.data.ptr, grad.data.ptr, inputs.shape[1], grad.shape[1]
    if (rows := len(grads[0])) > 0:
        grid = -(-rows * WARP // THREADS), len(grads)
        function = kernel("dense", "bound_rows", grads[0])
        function(grid, (THREADS,), (rate, repetitions, batch, rows, layers))


class DenseKernels(DeviceKernels):
    """Those operations that neither are products nor need scratch memory."""

    def gather(self, inputs, rows, out):
        (dense, *csr), (batch, fan_in) = inputs, out.shape
        if len(inputs.indptr):
            function = kernel("sparse", "gather_sparse", out)
            over_rows(function, batch, fan_in, *csr, rows, fan_in, out)
        else:
            function, source = kernel("dense", "gather_dense", out), (dense, rows, dense.shape[1])
            over_rows(function, batch, fan_in, *source, fan_in, out)

    def to_operands(self, values, out):
        over_cells(kernel("dense", "to_operands", out), values.size, values, values.size, out)

    def drop(self, fraction, key, layer, numbers, width, out):
        below, factor = int(dropout.limit(fraction)), float(dropout.factor(fraction))
        arguments = key, layer, below, factor, numbers, width, out.size, out.shape[1], out
        over_cells(kernel("dense", "drop", out), out.size, *arguments)

    def activate_backward(self, kind, activated, grad):
        if kind != LINEAR:
            function = kernel("dense", "activate_backward", grad)
            over_cells(function, -(-grad.nbytes // PACKET_BYTES), kind, grad.size, activated, grad)

    def scale(self, fraction, grad):
        over_cells(kernel("dense", "scale", grad), grad.size, float(fraction), grad.size, grad)

    def bound_rows(self, kind, hyper, batch, x, grad):
        self.bound_layers(kind, hyper, batch, (x,), (grad,))

    def bound_layers(self, kind, hyper, batch, x, grads):
        if kind not in BOUNDED:
            return
        for first in range(0, len(x), BOUND_LAYERS):
            some = slice(first, first + BOUND_LAYERS)
            _bound(rate_of(hyper), gradient_repetitions(kind, hyper), batch, x[some], grads[some])

    def forget_not_finite(self, totals, values):
        function = kernel("dense", "forget_not_finite", values)
        # Almost always no row was skipped, and each block only reads that.
        cells = min(values.size, RESIDENT_BLOCKS * multiprocessors() * THREADS)
        over_cells(function, cells, totals, values.size, values)

    def step(self, kind, hyper, gradient, slots, weights):
        count, optimizer = weights.size, optimizer_arguments(kind, hyper)
        over_cells(kernel("dense", "step"), count, *optimizer, count, gradient, *slots, weights)


def narrow_forward(x, weights, bias, width, out):
    """Linear `Kernels.dense_forward` for H up to NARROW; `bias` and `out` are floats."""
    (batch, fan_in), stored = x.shape, out.shape[1]
    if batch > 0:
        grid = (-(-batch * WARP // THREADS),)
        arguments = x, weights, bias, width, batch, fan_in, stored, out
        kernel("dense", "narrow_forward", x)(grid, (THREADS,), arguments)


def narrow_backward(grad, weights, kind, activated, out):
    """`Kernels.dense_backward` for weights[K, H] with H up to NARROW; `out` has operands."""
    (batch, stored), fan_in = grad.shape, out.shape[1]
    if batch > 0:
        columns = -(-fan_in // THREADS)
        grid = columns, min(batch, max(1, RESIDENT_BLOCKS * multiprocessors() // columns))
        arguments = grad, weights, kind, activated, batch, fan_in, stored, out
        kernel("dense", "narrow_backward", grad)(grid, (THREADS,), arguments)


SUM_THREADS = 1024  # per block, as in dense.cu
ROWS_OF_A_THREAD = 8  # minimum where blocks share columns: with fewer, adding parts takes longer


def number_of_parts(rows: int, lanes: int, groups: int, blocks: int) -> int:
    """Return how many blocks share the `rows` of each of the `groups` of columns.

    `lanes` is the number of rows that a block reads at a time. In total there are at most `blocks`
    blocks, if any columns are shared.
    """
    return max(1, min(rows // (lanes * ROWS_OF_A_THREAD), blocks // groups))


class ColumnSums:
    """The kernels of these sums with their scratch memory, which captured graphs also use.

    Only one thread at a time may call them. There are about `blocks` blocks, if there are enough
    rows; by default as many as the device runs concurrently.
    """

    def __init__(self, blocks: int | None = None) -> None:
        self._blocks = 2 * multiprocessors() if blocks is None else blocks
        self._parts = cupy.empty(self._blocks * WARP * NARROW, np.float32)
        self._finished = cupy.zeros(self._blocks, np.uint32)
        cleared = cupy.cuda.get_current_stream().record(cupy.cuda.Event(block=True))
        cleared.synchronize()  # the callers use other streams

    def __call__(self, fraction: float, add: bool, grad: cupy.ndarray, out: cupy.ndarray) -> None:
        """out[H] = fraction * sum over B of grad[B, H], plus out if `add`."""
        rows, width = grad.shape
        numbers = float(fraction), int(add), rows, width
        arguments = *numbers, grad, self._parts, self._finished, out
        kernel("dense", "sum_columns", grad)(*self._shape(rows, width), arguments)

    def narrow_gradient(
        self, x: cupy.ndarray, grad: cupy.ndarray, out: cupy.ndarray, bias: cupy.ndarray
    ) -> None:
        """`Kernels.weight_gradient` for grad[B, H] with H up to NARROW."""
        (rows, fan_in), biased = x.shape, int(bias.size > 0)
        numbers = rows, fan_in, grad.shape[1], biased
        arguments = *numbers, x, grad, self._parts, self._finished, out, bias
        kernel("dense", "narrow_gradient", x)(*self._shape(rows, fan_in + biased), arguments)

    def _shape(self, rows: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the grid and the threads of a block for [rows, width]."""
        columns = min(columns_of_a_block(width), WARP)
        lanes, groups = SUM_THREADS // columns, -(-width // columns)
        return (groups, number_of_parts(rows, lanes, groups, self._blocks)), (columns, lanes)
