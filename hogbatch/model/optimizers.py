"""The optimizers: how much state each keeps, and the constants it starts from.

The formulas are those of :meth:`hogbatch.kernels.contract.Kernels.step`.
"""

from dataclasses import dataclass
from typing import Final

from hogbatch.kernels import contract


@dataclass(frozen=True, slots=True)
class OptimizerSpec:
    """One optimizer."""

    name: str
    kind: int  # as kernels know it
    slots: int  # state tensors beside each parameter tensor
    learning_rate: float  # where the user gives none
    momentum: float = 0.0  # Adam's beta1
    beta2: float = 0.0
    epsilon: float = 0.0


OPTIMIZERS: Final = {
    spec.name: spec
    for spec in (
        OptimizerSpec("sgd", contract.SGD, 0, 0.05),
        OptimizerSpec("momentum", contract.MOMENTUM, 1, 0.005, momentum=0.9),
        OptimizerSpec("adagrad", contract.ADAGRAD, 1, 0.0075, epsilon=1e-8),
        OptimizerSpec("adam", contract.ADAM, 2, 0.001, momentum=0.9, beta2=0.999, epsilon=1e-8),
    )
}
