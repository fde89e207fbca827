"""The operations every backend provides, with the same names and arguments.

Shape letters, in this package and nowhere else with another meaning:
    B rows of a batch    N rows of a set        F features    n stored values
    K inputs of a layer  H outputs of a layer   C real outputs of the last layer

Rules for every operation
- arrays are C-contiguous; floats are float32, `indptr` and `rows` int64, `indices` int32;
- K and H are *stored* widths, padded for SIMD; padding columns of activations and gradients and
  padding cells of weights are zero, and every operation keeps them so;
- `rows`[B] are row numbers into the whole set, so that no batch is ever copied out of a CSR;
- the output comes last and is written in place; nothing is checked: callers check, kernels compute.
"""

from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Inputs, Labels

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]

# Kinds are plain integers, because compiled kernels take them as arguments.
LINEAR: Final = 0
RELU: Final = 1
SIGMOID: Final = 2
TANH: Final = 3
ACTIVATIONS: Final = {"linear": LINEAR, "relu": RELU, "sigmoid": SIGMOID, "tanh": TANH}

LOGISTIC: Final = 0
HINGE: Final = 1
SOFTMAX: Final = 2
MULTILABEL: Final = 3
SQUARED: Final = 4
LOSSES: Final = {
    "logistic": LOGISTIC,
    "hinge": HINGE,
    "softmax": SOFTMAX,
    "multilabel": MULTILABEL,
    "squared": SQUARED,
}

SGD: Final = 0
MOMENTUM: Final = 1
ADAGRAD: Final = 2
ADAM: Final = 3
OPTIMIZERS: Final = {"sgd": SGD, "momentum": MOMENTUM, "adagrad": ADAGRAD, "adam": ADAM}

# How far one row may move its own pre-activations in one step, in units of its gradient; beyond 2
# a step overshoots. Plain SGD is left alone wherever it could converge, outliers are held.
FURTHEST: Final = 10.0

# Cells of `totals`, a float64[TOTALS] that kernels add to.
LOSS: Final = 0  # summed over rows
SKIPPED: Final = 1  # rows whose loss or gradient was not finite
ROWS: Final = 2
UPDATES: Final = 3
HITS: Final = 4  # and the next two: sums of the metrics (see hogbatch.losses)
TOTALS: Final = 7


class Hyper(NamedTuple):
    """Numbers of one optimizer step. `rate` includes Adam's bias correction (see `step`)."""

    rate: float
    l2: float
    momentum: float  # beta1 of Adam
    beta2: float
    epsilon: float


class Slots(NamedTuple):
    """Optimizer state beside a tensor, same shape; [0, 0] where the optimizer has none.

    momentum: first = velocity. adagrad: first = sum of squares. adam: first = m, second = v.
    """

    first: Floats
    second: Floats


class Links(NamedTuple):
    """Scratch of `csr_step`: the occurrences of each feature in a batch as linked lists.

    `head`[F] is -1 everywhere before and after each call; the others hold the batch's n values.
    """

    head: NDArray[np.int32]
    following: NDArray[np.int32]  # next occurrence of the same feature, or -1
    member: NDArray[np.int32]  # which row of the batch an occurrence belongs to
    touched: NDArray[np.int32]  # distinct features in order of first occurrence


class Kernels(Protocol):
    """One backend. A module with these functions is a backend."""

    def gather(self, inputs: Inputs, rows: Rows, out: Floats) -> None:
        """out[B, K] = dense inputs of `rows`, zero beyond column F."""

    def dense_forward(self, x: Floats, weights: Floats, bias: Floats, out: Floats) -> None:
        """out[B, H] = x[B, K] @ weights[K, H] + bias[H]."""

    def csr_forward(
        self, inputs: Inputs, rows: Rows, weights: Floats, bias: Floats, out: Floats
    ) -> None:
        """out[B, H] = X @ weights[F, H] + bias[H], X the CSR inputs of `rows`."""

    def activate(self, kind: int, width: int, out: Floats) -> None:
        """out[B, :width] = f(out); columns from `width` on become zero."""

    def activate_backward(self, kind: int, activated: Floats, grad: Floats) -> None:
        """grad[B, H] *= f'(z), from activated[B, H] = f(z)."""

    def loss_gradient(
        self,
        kind: int,
        labels: Labels,
        rows: Rows,
        width: int,
        scores: Floats,
        grad: Floats,
        totals: NDArray[np.float64],
    ) -> None:
        """grad[B, H] = d(mean loss)/d(scores); totals[LOSS] += sum of losses.

        `width` = C real columns. A row whose loss or gradient is not finite counts in
        totals[SKIPPED] instead, and its gradient is zero.
        """

    def loss_and_hits(
        self,
        kind: int,
        labels: Labels,
        rows: Rows,
        width: int,
        scores: Floats,
        totals: NDArray[np.float64],
    ) -> None:
        """totals[LOSS] += sum of losses, totals[HITS...] += sums of the loss's metrics.

        logistic, hinge: right signs. softmax: right classes. multilabel: precision at 1, 3, 5.
        squared: squared errors. A row with a score that is not finite counts in totals[SKIPPED].
        """

    def dense_backward(self, grad: Floats, weights: Floats, out: Floats) -> None:
        """out[B, K] = grad[B, H] @ weights[K, H].T."""

    def bound_rows(self, kind: int, hyper: Hyper, x: Floats, grad: Floats) -> None:
        """grad[B, H] *= min(1, FURTHEST B / (rate |x[b]|²)) for each row b of x[B, K].

        Under SGD and momentum (whose rate counts 1 / (1 - momentum) times), a row of norm |x|
        moves its own pre-activations by rate |x|² / B times its gradient; one far outlier can so
        blow up a model that has trained for hours. The same bound as in normalised LMS (Nagumo &
        Noda 1967), which is FURTHEST = 1 at B = 1. Adagrad and Adam scale their steps themselves.
        """

    def csr_bound_rows(
        self, kind: int, hyper: Hyper, inputs: Inputs, rows: Rows, grad: Floats
    ) -> None:
        """`bound_rows` with x the CSR inputs of `rows`."""

    def weight_gradient(self, x: Floats, grad: Floats, out: Floats) -> None:
        """out[K, H] = x[B, K].T @ grad[B, H]."""

    def bias_gradient(self, grad: Floats, out: Floats) -> None:
        """out[H] = sum over B of grad[B, H]."""

    def step(
        self, kind: int, hyper: Hyper, gradient: Floats, slots: Slots, weights: Floats
    ) -> None:
        """One optimizer step on a tensor [K, H], in place; g = gradient + l2 * weights.

        sgd       w -= rate g
        momentum  m = momentum m + g;  w -= rate m                     (Polyak 1964)
        adagrad   s += g²;  w -= rate g / (sqrt(s) + epsilon)          (Duchi et al. 2011)
        adam      m += (1-b1)(g - m);  v += (1-b2)(g² - v);
                  w -= rate m / (sqrt(v) + epsilon)                    (Kingma & Ba 2015, end of
                  section 2: `rate` = lr sqrt(1-b2^t) / (1-b1^t) is the caller's)
        """

    def csr_step(
        self,
        kind: int,
        hyper: Hyper,
        inputs: Inputs,
        rows: Rows,
        grad: Floats,
        links: Links,
        slots: Slots,
        weights: Floats,
    ) -> None:
        """`step` with gradient X.T @ grad[B, H], on the rows of weights[F, H] that X touches only.

        A feature that several rows of the batch share is stepped once, with the summed gradient.
        """


OPERATIONS: Final = (
    "gather",
    "dense_forward",
    "csr_forward",
    "activate",
    "activate_backward",
    "loss_gradient",
    "loss_and_hits",
    "dense_backward",
    "bound_rows",
    "csr_bound_rows",
    "weight_gradient",
    "bias_gradient",
    "step",
    "csr_step",
)
