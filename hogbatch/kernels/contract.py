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

from typing import Any, Final, NamedTuple, Protocol

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
SOFTMAX_MANY: Final = 5
LOSSES: Final = {
    "logistic": LOGISTIC,
    "hinge": HINGE,
    "softmax": SOFTMAX,
    "multilabel": MULTILABEL,
    "multilabel-softmax": SOFTMAX_MANY,
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

# A gradient from here on counts as 0 under Adagrad and Adam. Its square would soon be infinite in
# their sums, and never leave them; one feature of 1e38 can do that.
LARGEST: Final = 1e15

# Cells of `totals`, a float64[TOTALS] that kernels add to; `add_totals` adds up several.
LOSS: Final = 0  # summed over rows
SKIPPED: Final = 1  # rows with a loss or a score that was not finite
ROWS: Final = 2
UPDATES: Final = 3
ACTIVE: Final = 4  # neurons of a hashed output layer that were computed, summed over updates
SKIPPED_ROW: Final = (
    5  # not a sum: 1 + the highest number of a row skipped in training, 0 if none was
)
METRIC_SUMS: Final = 6  # and the next two: sums of the metrics (see hogbatch.model.losses)
TOTALS: Final = 9


def add_totals(part: NDArray[np.float64], totals: NDArray[np.float64]) -> None:
    """totals[TOTALS] += part, which counts other rows."""
    skipped_row = max(part[SKIPPED_ROW], totals[SKIPPED_ROW])
    totals += part
    totals[SKIPPED_ROW] = skipped_row


class Hyper(NamedTuple):
    """Numbers of one optimizer step. `rate` includes Adam's bias correction (see `step`).

    Where steps are recorded to be repeated (`Device.record`) the rate is a float64[1] of the
    backend, which a step reads when it runs; the other numbers are as they were when recorded.
    """

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
    """Scratch of `csr_step` on the CPU: the occurrences of each feature of a batch, linked.

    `head`[F] is -1 everywhere before and after each call; the others hold the batch's n values.
    """

    head: NDArray[np.int32]
    following: NDArray[np.int32]  # next occurrence of the same feature, or -1
    member: NDArray[np.int32]  # which row of the batch an occurrence belongs to
    touched: NDArray[np.int32]  # distinct features in order of first occurrence


class Kernels(Protocol):
    """One backend. A module with these functions is a backend."""

    def gather(self, inputs: Inputs, rows: Rows, out: Floats) -> None:
        """out[B, K] = inputs of `rows`, dense or CSR, zero beyond column F."""

    def dense_forward(
        self,
        x: Floats,
        weights: Floats,
        bias: Floats,
        activation: int,
        width: int,
        out: Floats,
    ) -> None:
        """out[B, H] = f(x[B, K] @ weights[K, H] + bias[H]); columns from `width` on are zero.

        No activation makes a number of nan: the loss must see it.
        """

    def csr_forward(
        self,
        inputs: Inputs,
        rows: Rows,
        weights: Floats,
        bias: Floats,
        activation: int,
        width: int,
        out: Floats,
    ) -> None:
        """`dense_forward` with x the CSR inputs of `rows`."""

    def add_bias(self, bias: Floats, width: int, out: Floats) -> None:
        """out[B, H] += bias[H]; columns from `width` on are zero."""

    def activate_backward(self, kind: int, activated: Floats, grad: Floats) -> None:
        """grad[B, H] *= f'(z), from activated[B, H] = f(z)."""

    def loss_gradient(
        self,
        kind: int,
        labels: Labels,
        rows: Rows,
        numbers: Rows,
        width: int,
        scores: Floats,
        grad: Floats,
        totals: NDArray[np.float64],
    ) -> None:
        """grad[B, H] = d(mean loss)/d(scores); totals[LOSS] += sum of losses.

        `width` = C real columns. A row whose loss or a score of which is not finite counts in
        totals[SKIPPED] instead, its gradient is zero, and totals[SKIPPED_ROW] becomes 1 + its
        number, if that is higher:
        `numbers`[B] name the `rows`, where these are places among gathered labels. (The
        loss of an infinite score may be 0, but 0 times what overflowed on its way is nan.) A row
        without labels has loss and gradient 0 under multilabel-softmax.
        """

    def forget_not_finite(self, totals: NDArray[np.float64], values: Floats) -> None:
        """Clear what is not finite in values[...], if totals[SKIPPED] counts any row.

        A skipped row has gradient 0, but 0 times what overflowed on its way is nan.
        """

    def loss_and_metrics(
        self,
        kind: int,
        labels: Labels,
        rows: Rows,
        width: int,
        scores: Floats,
        totals: NDArray[np.float64],
    ) -> None:
        """totals[LOSS] += sum of losses, totals[METRIC_SUMS...] += sums of the loss's metrics.

        logistic, hinge: right signs. softmax: right classes. multilabel, multilabel-softmax:
        precision at 1, 3, 5. squared: squared errors. A row with a score that is not finite counts
        in totals[SKIPPED].
        """

    def dense_backward(self, grad: Floats, weights: Floats, out: Floats) -> None:
        """out[B, K] = grad[B, H] @ weights[K, H].T."""

    def scale(self, fraction: float, grad: Floats) -> None:
        """grad[B, H] *= share."""

    def bound_rows(self, kind: int, hyper: Hyper, batch: int, x: Floats, grad: Floats) -> None:
        """grad[B, H] *= min(1, FURTHEST batch / (rate |x[b]|²)) for each row b of x[B, K].

        `batch` counts the rows that step together; these may be only some of them. Under SGD and
        momentum (whose rate counts 1 / (1 - momentum) times), a row of norm |x| moves its own
        pre-activations by rate |x|² / batch times its gradient; one far outlier can so blow up a
        model that has trained for hours. The same bound as in normalised LMS (Nagumo & Noda 1967),
        which is FURTHEST = 1 at a batch of 1. Adagrad and Adam scale their steps themselves.
        """

    def csr_bound_rows(
        self, kind: int, hyper: Hyper, inputs: Inputs, rows: Rows, grad: Floats
    ) -> None:
        """`bound_rows` with x the CSR inputs of `rows`, which are the whole batch."""

    def weight_gradient(self, x: Floats, grad: Floats, out: Floats) -> None:
        """out[K, H] = x[B, K].T @ grad[B, H]."""

    def bias_gradient(self, grad: Floats, out: Floats) -> None:
        """out[H] = sum over B of grad[B, H]."""

    def add_weight_gradient(self, fraction: float, x: Floats, grad: Floats, out: Floats) -> None:
        """out[K, H] += share * x[B, K].T @ grad[B, H]: what some rows of a batch add."""

    def add_bias_gradient(self, fraction: float, grad: Floats, out: Floats) -> None:
        """out[H] += share * sum over B of grad[B, H]."""

    def step(
        self, kind: int, hyper: Hyper, gradient: Floats, slots: Slots, weights: Floats
    ) -> None:
        """One optimizer step on a tensor of any shape, in place; g = gradient + l2 * weights.

        sgd       w -= rate g
        momentum  m = momentum m + g;  w -= rate m                     (Polyak 1964)
        adagrad   s += g²;  w -= rate g / (sqrt(s) + epsilon)          (Duchi et al. 2011)
        adam      m += (1-b1)(g - m);  v += (1-b2)(g² - v);
                  w -= rate m / (sqrt(v) + epsilon)                    (Kingma & Ba 2015, end of
                  section 2: `rate` = lr sqrt(1-b2^t) / (1-b1^t) is the caller's)

        For the last two a `gradient` that is not below LARGEST, or not finite, is 0.
        """

    def csr_scratch(self, features: int, width: int) -> Any:
        """What `csr_step` of weights[F, H] takes as `scratch`, for one step after the other."""

    def csr_step(
        self,
        kind: int,
        hyper: Hyper,
        inputs: Inputs,
        rows: Rows,
        grad: Floats,
        scratch: Any,
        slots: Slots,
        weights: Floats,
    ) -> None:
        """`step` with gradient X.T @ grad[B, H], on the rows of weights[F, H] that X touches only.

        A feature that several rows of the batch share is stepped once, with the summed gradient.
        """


class ReplicaKernels(Protocol):
    """What a device does besides: the exchange of a replica with the shared parameters.

    `params` is the replica, `base` what it would be without the changes that were not taken yet:
    at any time, params - base has still to be told. `shared` may be memory of the host that others
    write at the same time; nothing is lost of what they write, but where two meet in one cell.
    """

    def take(self, params: Floats, base: Floats, change: Floats, finite: Floats) -> None:
        """change[P] = params - base; base = params. finite[0] = 0 if a change is not finite."""

    def rejoin(self, pulled: Floats, params: Floats, base: Floats) -> None:
        """params[P] = pulled + (params - base); base = pulled."""

    def add(self, fraction: float, change: Floats, shared: Floats) -> None:
        """shared[P] += share * change."""

    def find_rows(
        self,
        inputs: Inputs,
        rows: Rows,
        head: NDArray[np.int32],
        touched: NDArray[np.int32],
        found: NDArray[np.int32],
    ) -> None:
        """touched[:found[0]] = the distinct features of the CSR `rows`, in any order.

        `touched` has room for F; `head`[F] is -1 everywhere, before and after.
        """

    def take_rows(
        self,
        touched: NDArray[np.int32],
        found: NDArray[np.int32],
        params: Floats,
        base: Floats,
        change: Floats,
        finite: Floats,
    ) -> None:
        """`take` on the touched rows of params[F, H]: change[t] is that of row touched[t]."""

    def rejoin_rows(
        self,
        touched: NDArray[np.int32],
        found: NDArray[np.int32],
        shared: Floats,
        params: Floats,
        base: Floats,
    ) -> None:
        """`rejoin` on the touched rows of params[F, H], with those of shared[F, H]."""

    def add_rows(
        self,
        fraction: float,
        touched: NDArray[np.int32],
        found: NDArray[np.int32],
        change: Floats,
        shared: Floats,
    ) -> None:
        """`add` on the touched rows of shared[F, H]; `change` as `take_rows` leaves it."""


class DeviceKernels(Kernels, ReplicaKernels, Protocol):
    """All that a GPU worker calls."""


REPLICA_OPERATIONS: Final = (
    "take",
    "rejoin",
    "add",
    "find_rows",
    "take_rows",
    "rejoin_rows",
    "add_rows",
)

OPERATIONS: Final = (
    "gather",
    "dense_forward",
    "csr_forward",
    "add_bias",
    "activate_backward",
    "loss_gradient",
    "forget_not_finite",
    "loss_and_metrics",
    "dense_backward",
    "scale",
    "bound_rows",
    "csr_bound_rows",
    "weight_gradient",
    "bias_gradient",
    "add_weight_gradient",
    "add_bias_gradient",
    "step",
    "csr_scratch",
    "csr_step",
)
