"""The GPU backend: the operations on CuPy arrays, in the current stream."""

from typing import NamedTuple

import cupy
import numpy as np

from hogbatch.kernels.contract import BOUNDED, LABEL_LISTS, LINEAR, RELU, unsmoothed
from hogbatch.kernels.gpu import dense
from hogbatch.kernels.gpu.backbone import BackboneKernels
from hogbatch.kernels.gpu.cublaslt import BGRADA, BIAS, RELU_BIAS, CublasLt
from hogbatch.kernels.gpu.dense import NARROW, ColumnSums
from hogbatch.kernels.gpu.launch import (
    LINK_THREADS,
    WARP,
    gradient_repetitions,
    kernel,
    optimizer_arguments,
    over_batch,
    over_cells,
    over_link,
    over_rows,
    over_touched,
    rate_of,
)


class SparseScratch(NamedTuple):
    """Scratch memory of `csr_step`, see sparse.cu."""

    head: cupy.ndarray  # int32[F], -1 between steps
    touched: cupy.ndarray  # int32[F]
    count: cupy.ndarray  # int32[1]: number of touched rows, known on the GPU only
    sums: cupy.ndarray  # float32[F, H], 0 between steps


# Gathering the rows of a batch from a set in device memory or in mapped host memory. All cells have
# 4 bytes.
THREADS = 1024  # per block; also the threads of `add_lengths`
# Enough to keep the link busy: each thread has up to 64 bytes in flight, 1 MB in total; a link of
# 55 GB/s with a latency of 2 µs needs 110 KB. The other multiprocessors remain free for training.
MAX_BLOCKS = 16
CHUNK = 4  # cells that a thread loads at once
LANES = 8  # threads that read a line of 128 bytes together


def _over_groups(function, rows, lanes, *arguments):
    """Launch with `lanes` threads per row, which process several rows in turn."""
    blocks = min(-(-rows * lanes // THREADS), MAX_BLOCKS)
    function((blocks,), (THREADS,), arguments)


class GpuKernels(BackboneKernels):
    """The operations; `precision` of matrix products is float32, tf32 or bfloat16.

    With bfloat16, their operands are stored in it, in half the memory.

    cuBLASLt adds bias, ReLU and bias gradients to a product. Where it has no algorithm, the product
    and the operations that follow it are separate launches. The slope of an activation is always a
    separate launch: for it cuBLASLt would launch a kernel too, and a slower one.
    """

    def __init__(self, precision: str) -> None:
        self._precision = precision
        self.products = CublasLt(precision)
        self._column_sums = ColumnSums()

    def operand_type(self, params):
        # CuPy has no bfloat16; kernels and cuBLASLt read arrays of uint16 as such.
        return np.dtype(np.uint16 if self._precision == "bfloat16" else params)

    def dense_forward(self, x, weights, bias, activation, width, out):
        if activation == LINEAR and _is_narrow(out) and out.dtype == np.float32:
            dense.narrow_forward(x, weights, bias, width, out)
        else:
            self._forward(x, weights, bias, activation, width, out)

    def output_major_forward(self, x, weights, bias, width, out):
        self._forward(x, weights, bias, LINEAR, width, out, transpose_b=True)

    def _forward(self, x, weights, bias, activation, width, out, **transposed) -> None:
        # Nothing clears the padding here: the padding of weights and biases is zero, in the model
        # and after every step, because gradients are zero there. So are bias and ReLU of zero.
        epilogue, arrays = {LINEAR: BIAS, RELU: RELU_BIAS}.get(activation), (x, weights, out)
        fused, multiply = self.products.multiply_fused, self.products.multiply
        if epilogue is None or not fused(epilogue, *arrays, bias, **transposed):
            multiply(*arrays, **transposed)
            dense.add_bias_and_activate(bias, activation, width, out)

    def dense_backward(self, grad, weights, activation, activated, out):
        if _is_narrow(grad) and out.dtype == grad.dtype:
            dense.narrow_backward(grad, weights, activation, activated, out)
        else:
            self.products.multiply(grad, weights, out, transpose_b=True)
            self.activate_backward(activation, activated, out)

    def weight_gradient(self, x, grad, out, bias):
        wanted, fused = bias.size > 0, self.products.multiply_fused
        if _is_narrow(grad):
            self._column_sums.narrow_gradient(x, grad, out, bias)
        elif not (wanted and fused(BGRADA, x, grad, out, bias, transpose_a=True)):
            self.products.multiply(x, grad, out, transpose_a=True)
            if wanted:
                self.bias_gradient(grad, bias)

    def add_weight_gradient(self, fraction, x, grad, out):
        self.products.multiply(x, grad, out, transpose_a=True, fraction=fraction, add=True)

    def bias_gradient(self, grad, out):
        self._column_sums(1.0, False, grad, out)

    def add_bias_gradient(self, fraction, grad, out):
        self._column_sums(fraction, True, grad, out)

    def loss_gradient(self, kind, labels, rows, numbers, width, scores, grad, totals):
        batch, stored = scores.shape
        arguments = rows, numbers, batch, width, stored, scores, grad, totals
        kind, smoothing = unsmoothed(kind)
        if stored <= NARROW and kind not in LABEL_LISTS:  # one thread per row, else one block
            own = labels.values, labels.weights, len(labels.weights)
            function = kernel("losses", "narrow_loss_gradient", grad)
            over_cells(function, batch, kind, smoothing, *own, *arguments)
        else:
            function, own = kernel("losses", "loss_gradient", grad), (*labels, len(labels.weights))
            over_rows(function, batch, stored, kind, smoothing, *own, *arguments)

    def loss_and_metrics(self, kind, labels, rows, width, scores, totals):
        batch, stored = scores.shape
        (kind, _), own = unsmoothed(kind), (*labels, len(labels.weights), rows)
        function = kernel("losses", "loss_and_metrics")
        over_rows(function, batch, stored, kind, *own, width, stored, scores, totals)

    def csr_forward(self, inputs, rows, weights, bias, activation, width, out):
        batch, stored = out.shape
        function = kernel("sparse", "csr_forward", out)
        layer = weights, bias, activation, width, stored
        over_batch(function, batch, stored, *inputs[1:], rows, batch, *layer, out)

    def csr_bound_rows(self, kind, hyper, inputs, rows, grad):
        if kind in BOUNDED:
            batch, width = grad.shape
            bound = rate_of(hyper), gradient_repetitions(kind, hyper)
            csr = inputs.indptr, inputs.values, rows
            function = kernel("sparse", "csr_bound_rows", grad)
            over_batch(function, batch, WARP, *bound, *csr, batch, width, grad)

    def csr_scratch(self, features, width):
        return SparseScratch(
            cupy.full(features, -1, np.int32),
            cupy.empty(features, np.int32),
            cupy.zeros(1, np.int32),
            cupy.zeros((features, width), np.float32),
        )

    def csr_step(self, kind, hyper, inputs, rows, grad, scratch, slots, weights):
        head, touched, count, sums = scratch
        (features, width), batch = weights.shape, len(rows)
        count.fill(0)
        function, marks = kernel("sparse", "add_up", grad), (head, touched, count)
        over_batch(function, batch, width, *inputs[1:], rows, batch, width, grad, sums, *marks)
        optimizer = optimizer_arguments(kind, hyper)
        arrays = touched, count, width, sums, head, *slots, weights
        over_touched(kernel("sparse", "step_touched"), features, width, *optimizer, *arrays)

    def hand_over(self, pulled, params, base, seen, change, finite):
        arrays = params, base, seen, change, finite
        over_cells(kernel("replica", "hand_over"), params.size, pulled, params.size, *arrays)

    def drain(self, values, out):
        over_cells(kernel("replica", "drain"), values.size, values, values.size, out)

    def add(self, fraction, scale, seen, change, shared, pulled):
        arguments = float(fraction), float(scale), seen, change, change.size, shared, pulled
        if change.size > 0:
            over_link(kernel("replica", "add"), LINK_THREADS, *arguments)

    def find_rows(self, inputs, rows, head, touched, found):
        found.fill(0)
        batch = len(rows)
        arrays = inputs.indptr, inputs.indices, rows, batch, head, touched, found
        over_batch(kernel("sparse", "find_touched"), batch, WARP, *arrays)
        over_touched(kernel("sparse", "unmark"), touched.size, 1, touched, found, head)

    def take_rows(self, touched, found, params, base, change, finite):
        features, width = params.shape
        arrays = touched, found, width, params, base, change, finite
        over_touched(kernel("replica", "take_rows"), features, width, *arrays)

    def rejoin_rows(self, touched, found, shared, params, base):
        features, width = params.shape
        arrays = touched, found, width, shared, params, base
        over_touched(kernel("replica", "rejoin_rows"), features, width, *arrays)

    def add_rows(self, fraction, touched, found, change, shared):
        width = shared.shape[1]
        packets = width // 4 if width % 4 == 0 else width
        arrays = touched, found, width, change, shared
        over_link(kernel("replica", "add_rows"), packets, float(fraction), *arrays)

    def copy_rows(self, source, rows, out):
        width = out.size // max(1, len(out))
        chunks = -(-width // CHUNK)
        lanes = min(1 << max(0, chunks - 1).bit_length(), LANES)  # fewer for narrow rows
        if out.size > 0:
            arguments = source, rows, len(rows), width, lanes, out
            _over_groups(kernel("staging", "copy_rows"), len(rows), lanes, *arguments)

    def copy_cells(self, source, starts, indptr, out):
        arguments = source, starts, indptr, len(starts), LANES, out
        _over_groups(kernel("staging", "copy_cells"), len(starts), LANES, *arguments)

    def select_rows(self, indptr, rows, starts, out, stored):
        arguments = indptr, rows, len(rows), starts, out[1:]
        over_cells(kernel("staging", "find_spans"), len(rows), *arguments)
        kernel("staging", "add_lengths")((1,), (THREADS,), (len(rows), out, stored))


def _is_narrow(outputs) -> bool:
    """Whether a layer with `outputs`[B, H] has its own kernels in place of products."""
    return outputs.shape[1] <= dense.NARROW
