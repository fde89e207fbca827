"""The table of optimizers: the state, update rule and properties of each.

This is the only list of optimizers. The numbers and sets of numbers that kernels compare
(`hogbatch.kernels.contract`, and from there the CUDA `#define`s), the choices of `--optimizer`, the
size of the shared memory and the recommended learning rates are derived from it. The module imports
nothing, so that every other module may import it.

Each backend implements each rule once: `kernels/reference.py` (NumPy), `kernels/cpu/rules.py`
(compiled) and `kernels/gpu/cuda/common.cuh` (CUDA). In the rules below, w is a weight, `rate` the
learning rate, and g the gradient of the mean loss of a batch plus l2 * w; of an optimizer with
`decoupled` decay it is without l2 * w.
"""

from dataclasses import dataclass
from typing import Final, Literal

Scaling = Literal["linear", "sqrt"]


@dataclass(frozen=True, slots=True)
class OptimizerSpec:
    """One optimizer."""

    name: str
    kind: int  # its number in kernels
    slots: int  # state tensors for each parameter tensor: 0, 1 or 2

    # Constants of the rule.
    learning_rate: float  # default, for a deep network and a batch of RATE_BATCH rows
    momentum: float = 0.0  # for Adam: beta1
    beta2: float = 0.0
    epsilon: float = 0.0
    warm_up: float = 0.0  # updates in which the rate rises linearly to its full value

    # Recommended learning rates (run/defaults.py).
    scaling: Scaling = "linear"  # growth of the learning rate with the batch
    hashed_learning_rate: float | None = None  # with a hashed output layer; None: as without one
    layers_learning_rate: float | None = None  # with `--layers`, for all losses; None: as without
    # Adaptive optimizers: factor of the learning rate for a linear model with values of size 1.
    linear_steps: float = 1.0
    # Adaptive optimizers: factor of the learning rate for a loss with an unbounded gradient.
    unbounded_loss_factor: float = 1.0

    # What kernels and workers must know about the rule.
    adaptive: bool = False  # divides by the size of past gradients; skips those beyond LARGEST
    bias_corrected: bool = False  # corrects the learning rate for slots that start at zero
    bounded: bool = True  # limits how far a row can move its own outputs (`bound_rows`)
    velocity: bool = False  # each gradient counts 1 / (1 - momentum) times in total
    additive: bool = False  # no state: the step of a batch is the sum of the steps of its rows
    ignores_zeros: bool = False  # a gradient of 0 changes neither weight nor slots
    decoupled: bool = False  # decays weights by rate l2 w, which is no part of the gradient
    # The first slot is a sum over all gradients, to which all workers add. A thread with slots of
    # its own sees 1 / threads of that sum and takes smaller steps.
    summed_slots: bool = False


_SPECS: Final = (
    # w -= rate g
    OptimizerSpec("sgd", kind=0, slots=0, learning_rate=0.05, additive=True, ignores_zeros=True),
    # m = momentum m + g;  w -= rate m
    # Polyak 1964. Slot: the velocity m.
    OptimizerSpec("momentum", kind=1, slots=1, learning_rate=0.005, momentum=0.9, velocity=True),
    # s += g²;  w -= rate g / (sqrt(s) + epsilon)
    # Duchi et al. 2011. Slot: the sum of squares s. From sums of 0, each step is as large as the
    # rate whatever the gradient. Without `warm_up`, the loss rises to many times that of the
    # initial model, and the squares of these gradients stay in the sums.
    OptimizerSpec(
        "adagrad",
        kind=2,
        slots=1,
        learning_rate=0.0075,
        epsilon=1e-8,
        warm_up=10.0,
        scaling="sqrt",
        hashed_learning_rate=0.025,
        linear_steps=4.0,
        unbounded_loss_factor=0.4,  # finer steps overfit less
        adaptive=True,
        bounded=False,
        ignores_zeros=True,
        summed_slots=True,
    ),
    # m += (1 - momentum)(g - m);  v += (1 - beta2)(g² - v)
    # w -= rate (m / (sqrt(v) + epsilon) + l2 w)
    # Kingma & Ba 2015, end of section 2: rate = lr sqrt(1 - beta2^t) / (1 - momentum^t) at step t.
    # Slots: the moments m and v. A decay that is divided by sqrt(v), too, would hardly change
    # weights with large gradients (Loshchilov & Hutter 2019, "Decoupled Weight Decay").
    OptimizerSpec(
        "adam",
        kind=3,
        slots=2,
        learning_rate=0.001,
        momentum=0.9,
        beta2=0.999,
        epsilon=1e-8,
        scaling="sqrt",
        hashed_learning_rate=0.002,
        layers_learning_rate=0.002,
        linear_steps=1.2,  # they do not shrink as those of Adagrad
        unbounded_loss_factor=3.0,  # of standardised labels
        adaptive=True,
        bias_corrected=True,
        bounded=False,
        decoupled=True,
    ),
)

OPTIMIZERS: Final = {spec.name: spec for spec in _SPECS}
