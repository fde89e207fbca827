"""The contract, as Numba compiles it."""

from hogbatch.kernels.cpu.dense import (
    activate as activate,
    activate_backward as activate_backward,
    bias_gradient as bias_gradient,
    bound_rows as bound_rows,
    dense_backward as dense_backward,
    dense_forward as dense_forward,
    gather as gather,
    step as step,
    weight_gradient as weight_gradient,
)
from hogbatch.kernels.cpu.losses import (
    loss_and_hits as loss_and_hits,
    loss_gradient as loss_gradient,
)
from hogbatch.kernels.cpu.sparse import (
    csr_bound_rows as csr_bound_rows,
    csr_forward as csr_forward,
    csr_step as csr_step,
)
