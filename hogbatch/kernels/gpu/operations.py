"""The GPU backend: operations of the kernel contract on CuPy arrays, in the current stream."""

from hogbatch.kernels.gpu import dense, losses, replica, sparse, staging
from hogbatch.kernels.gpu.cublas import Cublas


class GpuKernels:
    """The operations; `precision` of matrix products is float32, tf32 or bfloat16."""

    gather = staticmethod(dense.gather)
    csr_forward = staticmethod(sparse.csr_forward)
    add_bias = staticmethod(dense.add_bias)
    activate_backward = staticmethod(dense.activate_backward)
    loss_gradient = staticmethod(losses.loss_gradient)
    forget_not_finite = staticmethod(dense.forget_not_finite)
    loss_and_metrics = staticmethod(losses.loss_and_metrics)
    scale = staticmethod(dense.scale)
    bound_rows = staticmethod(dense.bound_rows)
    csr_bound_rows = staticmethod(sparse.csr_bound_rows)
    bias_gradient = staticmethod(dense.bias_gradient)
    add_bias_gradient = staticmethod(dense.add_bias_gradient)
    step = staticmethod(dense.step)
    csr_scratch = staticmethod(sparse.csr_scratch)
    csr_step = staticmethod(sparse.csr_step)
    take = staticmethod(replica.take)
    rejoin = staticmethod(replica.rejoin)
    add = staticmethod(replica.add)
    find_rows = staticmethod(replica.find_rows)
    take_rows = staticmethod(replica.take_rows)
    rejoin_rows = staticmethod(replica.rejoin_rows)
    add_rows = staticmethod(replica.add_rows)
    copy_rows = staticmethod(staging.copy_rows)
    copy_cells = staticmethod(staging.copy_cells)
    select_rows = staticmethod(staging.select_rows)

    def __init__(self, precision: str) -> None:
        self._cublas = Cublas(precision)

    def dense_forward(self, x, weights, bias, activation, width, out):
        self._cublas.multiply(x, weights, out)
        dense.add_bias_and_activate(bias, activation, width, out)

    def dense_backward(self, grad, weights, out):
        self._cublas.multiply(grad, weights, out, transpose_b=True)

    def weight_gradient(self, x, grad, out):
        self._cublas.multiply(x, grad, out, transpose_a=True)

    def add_weight_gradient(self, fraction, x, grad, out):
        self._cublas.multiply(x, grad, out, transpose_a=True, fraction=fraction, add=True)
