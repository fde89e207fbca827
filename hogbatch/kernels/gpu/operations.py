"""The GPU backend: operations of the kernel contract on CuPy arrays, in the current stream."""

import logging

import numpy as np

from hogbatch.kernels.contract import LINEAR, RELU
from hogbatch.kernels.gpu import dense, losses, replica, sparse, staging
from hogbatch.kernels.gpu.cublas import Cublas
from hogbatch.kernels.gpu.cublaslt import BGRADA, BIAS, PLAIN, RELU_BIAS, CublasLt
from hogbatch.kernels.gpu.dense import ColumnSums


class GpuKernels:
    """The operations; `precision` of matrix products is float32, tf32 or bfloat16.

    With bfloat16, their operands are stored in it, in half the memory.

    cuBLASLt adds bias, ReLU and bias gradients to a product. Where it has no algorithm, the product
    and the operations that follow it are separate launches. The slope of an activation is always a
    separate launch: for it cuBLASLt would launch a kernel too, and a slower one.
    """

    gather = staticmethod(dense.gather)
    to_operands = staticmethod(dense.to_operands)
    csr_forward = staticmethod(sparse.csr_forward)
    drop = staticmethod(dense.drop)
    activate_backward = staticmethod(dense.activate_backward)
    loss_gradient = staticmethod(losses.loss_gradient)
    forget_not_finite = staticmethod(dense.forget_not_finite)
    loss_and_metrics = staticmethod(losses.loss_and_metrics)
    scale = staticmethod(dense.scale)
    bound_rows = staticmethod(dense.bound_rows)
    bound_layers = staticmethod(dense.bound_layers)
    csr_bound_rows = staticmethod(sparse.csr_bound_rows)
    step = staticmethod(dense.step)
    csr_scratch = staticmethod(sparse.csr_scratch)
    csr_step = staticmethod(sparse.csr_step)
    hand_over = staticmethod(replica.hand_over)
    drain = staticmethod(replica.drain)
    add = staticmethod(replica.add)
    find_rows = staticmethod(replica.find_rows)
    take_rows = staticmethod(replica.take_rows)
    rejoin_rows = staticmethod(replica.rejoin_rows)
    add_rows = staticmethod(replica.add_rows)
    copy_rows = staticmethod(staging.copy_rows)
    copy_cells = staticmethod(staging.copy_cells)
    select_rows = staticmethod(staging.select_rows)

    def __init__(self, precision: str) -> None:
        self._precision = precision
        self._cublas = Cublas(precision)
        self._cublaslt = _cublaslt(precision, self._cublas.workspace)
        self._column_sums = ColumnSums()

    def operand_type(self, params):
        # CuPy has no bfloat16; kernels and cuBLAS read arrays of uint16 as such.
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
        if epilogue is None or not self._multiply(epilogue, *arrays, vector=bias, **transposed):
            self._product(*arrays, **transposed)
            dense.add_bias_and_activate(bias, activation, width, out)

    def dense_backward(self, grad, weights, activation, activated, out):
        if _is_narrow(grad) and out.dtype == grad.dtype:
            dense.narrow_backward(grad, weights, activation, activated, out)
        else:
            self._product(grad, weights, out, transpose_b=True)
            dense.activate_backward(activation, activated, out)

    def weight_gradient(self, x, grad, out, bias):
        wanted = bias.size > 0
        if _is_narrow(grad):
            self._column_sums.narrow_gradient(x, grad, out, bias)
        elif not (wanted and self._multiply(BGRADA, x, grad, out, transpose_a=True, vector=bias)):
            self._product(x, grad, out, transpose_a=True)
            if wanted:
                self.bias_gradient(grad, bias)

    def add_weight_gradient(self, fraction, x, grad, out):
        self._cublas.multiply(x, grad, out, transpose_a=True, fraction=fraction, add=True)

    def bias_gradient(self, grad, out):
        self._column_sums(1.0, False, grad, out)

    def add_bias_gradient(self, fraction, grad, out):
        self._column_sums(fraction, True, grad, out)

    def _product(self, *arrays, **options) -> None:
        """out = op(a) @ op(b)."""
        if not self._multiply(PLAIN, *arrays, **options):
            self._cublas.multiply(*arrays, **options)

    def _multiply(self, epilogue, *arrays, **options) -> bool:
        return self._cublaslt is not None and self._cublaslt.multiply(epilogue, *arrays, **options)


def _is_narrow(outputs) -> bool:
    """Whether a layer with `outputs`[B, H] has its own kernels in place of products."""
    return outputs.shape[1] <= dense.NARROW


def _cublaslt(precision, workspace) -> CublasLt | None:
    """cuBLASLt, or None if it cannot be used."""
    try:
        return CublasLt(precision, workspace)
    except (OSError, RuntimeError) as error:
        logging.info("training steps take more launches, because cuBLASLt is missing: %s", error)
        return None
