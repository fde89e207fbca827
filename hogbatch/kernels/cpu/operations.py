"""The operations of the kernel contract, compiled by Numba."""

from hogbatch.kernels.cpu.dense import (
    activate_backward as activate_backward,
    add_bias as add_bias,
    add_bias_gradient as add_bias_gradient,
    add_weight_gradient as add_weight_gradient,
    bias_gradient as bias_gradient,
    bound_rows as bound_rows,
    dense_backward as dense_backward,
    dense_forward as dense_forward,
    forget_not_finite as forget_not_finite,
    gather as gather,
    scale as scale,
    step as step,
    weight_gradient as weight_gradient,
)
from hogbatch.kernels.cpu.losses import (
    loss_and_metrics as loss_and_metrics,
    loss_gradient as loss_gradient,
)
from hogbatch.kernels.cpu.sparse import (
    csr_bound_rows as csr_bound_rows,
    csr_forward as csr_forward,
    csr_scratch as csr_scratch,
    csr_step as csr_step,
)


def operand_type(params):
    """`Kernels.operand_type`: all numbers have the type of the parameters."""
    return params


def to_operands(values, out):
    """`Kernels.to_operands`."""
    out[:] = values


def mask_bytes(width: int) -> int:
    """`Kernels.mask_bytes`: there are no masks."""
    return 0


def bound_layers(kind, hyper, batch, x, grads):
    """`Kernels.bound_layers`."""
    for inputs, grad in zip(x, grads, strict=True):
        bound_rows(kind, hyper, batch, inputs, grad)
