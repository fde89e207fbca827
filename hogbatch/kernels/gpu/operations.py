"""The gpu backend: the contract's operations on CuPy arrays, on the current device and stream."""

from hogbatch.kernels.gpu.dense import (
    activate,
    activate_backward,
    bias_gradient,
    bound_rows,
    dense_backward,
    dense_forward,
    gather,
    step,
    weight_gradient,
)
from hogbatch.kernels.gpu.losses import loss_and_hits, loss_gradient
from hogbatch.kernels.gpu.sparse import csr_bound_rows, csr_forward, csr_step

__all__ = [
    "activate",
    "activate_backward",
    "bias_gradient",
    "bound_rows",
    "csr_bound_rows",
    "csr_forward",
    "csr_step",
    "dense_backward",
    "dense_forward",
    "gather",
    "loss_and_hits",
    "loss_gradient",
    "step",
    "weight_gradient",
]
