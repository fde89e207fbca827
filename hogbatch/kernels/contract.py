"""The operations every backend provides: NumPy (`kernels.reference`) and GPUs (`kernels.gpu`).

The compiled loops of CPUs (`kernels.cpu`) have functions of their own for them.

Shape letters, with the same meaning in the whole package:
    B rows of a batch    N rows of a set        F features    n stored values
    K inputs of a layer  H outputs of a layer   C real outputs of the last layer

Rules for every operation
- arrays are C-contiguous; floats are float32, `indptr` and `rows` int64, `indices` int32;
- `Operands` of matrix products have the type that the backend asks for (`operand_type`);
- K and H are *stored* widths, padded for SIMD; padding columns of activations and gradients and
  padding cells of weights are zero, and every operation keeps them so;
- `rows`[B] are row numbers into the whole set, so that no batch is copied out of a CSR;
- the output comes last and is written in place;
- arguments are not checked: that is the caller's task.
"""

from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.config import losses, metrics, optimizers
from hogbatch.data.batch import Inputs, Labels

Floats = NDArray[np.float32]
Operands = NDArray[Any]  # float32 like all others, unless a backend stores them in a shorter type
Rows = NDArray[np.int64]

# Kinds are plain integers, because compiled kernels take them as arguments.
LINEAR: Final = 0
RELU: Final = 1
SIGMOID: Final = 2
TANH: Final = 3
SELU: Final = 4
ACTIVATIONS: Final = {
    "linear": LINEAR,
    "relu": RELU,
    "selu": SELU,
    "sigmoid": SIGMOID,
    "tanh": TANH,
}

# SELU(z) is SELU_SLOPE z for z > 0, else SELU_LIMIT (e^z - 1): the values with which outputs of
# mean 0 and variance 1 keep them (Klambauer et al. 2017, "Self-Normalizing Neural Networks").
SELU_SLOPE: Final = 1.0507009873554805
SELU_LIMIT: Final = 1.7580993408473769

# Losses and optimizers by name. Their numbers and properties come from the two tables in
# hogbatch.config; kernels compare numbers, and ask for a property by `kind in SET`. The quantile
# losses have the numbers below 0: -1,000,000 times the quantile.
LOSSES: Final = {name: losses.LOSSES[name].kind for name in losses.CHOICES}  # each kind once
LOGISTIC: Final = LOSSES["logistic"]
HINGE: Final = LOSSES["hinge"]
SOFTMAX: Final = LOSSES["softmax"]
MULTILABEL: Final = LOSSES["multilabel"]
SQUARED: Final = LOSSES["squared"]
HUBER: Final = LOSSES["huber"]
ABSOLUTE: Final = LOSSES["absolute"]
POISSON: Final = LOSSES["poisson"]
SOFTMAX_MANY: Final = LOSSES["multilabel-softmax"]
LABEL_LISTS: Final = losses.kinds_where(lambda loss: loss.label_lists)
NORMALISED: Final = losses.kinds_where(lambda loss: loss.normalised)
BINARY: Final = losses.kinds_where(lambda loss: loss.encoding == "binary")
STEEPEST: Final = losses.STEEPEST
SMOOTHED: Final = 16  # from here on, the numbers of losses with label smoothing: `smoothed`
LARGEST_LOG: Final = losses.LARGEST_LOG

OPTIMIZERS: Final = {name: spec.kind for name, spec in optimizers.OPTIMIZERS.items()}
SGD: Final = OPTIMIZERS["sgd"]
MOMENTUM: Final = OPTIMIZERS["momentum"]
ADAGRAD: Final = OPTIMIZERS["adagrad"]
ADAM: Final = OPTIMIZERS["adam"]
ADAPTIVE: Final = optimizers.kinds_where(lambda spec: spec.adaptive)
BIAS_CORRECTED: Final = optimizers.kinds_where(lambda spec: spec.bias_corrected)
BOUNDED: Final = optimizers.kinds_where(lambda spec: spec.bounded)
VELOCITY: Final = optimizers.kinds_where(lambda spec: spec.velocity)
ADDITIVE: Final = optimizers.kinds_where(lambda spec: spec.additive)
DECOUPLED: Final = optimizers.kinds_where(lambda spec: spec.decoupled)
IGNORES_ZEROS: Final = optimizers.kinds_where(lambda spec: spec.ignores_zeros)
SUMMED_SLOTS: Final = optimizers.kinds_where(lambda spec: spec.summed_slots)

# How far one row may move its own pre-activations in one step, in units of its gradient; beyond 2
# a step overshoots. The bound does not change SGD where it could converge; it only limits outliers.
FURTHEST: Final = 10.0

# ADAPTIVE optimizers treat a gradient of at least this size as 0. Its square would soon overflow
# in their slots and stay there; one feature of 1e38 is enough for that.
LARGEST: Final = 1e15

TOP: Final = max(metrics.CUTOFFS)  # the best columns of a row, which metrics count

# Cells of `totals`, a float64[TOTALS] that kernels add to; `add_totals` adds several.
LOSS: Final = 0  # summed over rows
SKIPPED: Final = 1  # rows with a loss or a score that was not finite
ROWS: Final = 2
UPDATES: Final = 3
ACTIVE: Final = 4  # outputs of a hashed layer that were computed, summed over updates
SKIPPED_ROW: Final = 5  # not a sum: 1 + the highest number of a row skipped in training, else 0
EXTRA_WEIGHT: Final = 6  # weight - 1, summed over the rows that were not skipped
METRIC_SUMS: Final = 7  # and the next two: sums of the metrics (see hogbatch.config.losses)
TOTALS: Final = 10


class RowScores(NamedTuple):
    """What an evaluation stores for each of N rows: all scores, or the best columns.

    The array that is not stored is [0, 0].
    """

    scores: Floats  # [N, C]
    best: NDArray[np.int32]  # [N, TOP]: the columns with the highest scores, best first, or -1

    @property
    def stored(self) -> NDArray[Any]:
        """The array that is stored."""
        return self.scores if self.scores.size else self.best


NO_SCORES: Final = RowScores(np.empty((0, 0), np.float32), np.empty((0, 0), np.int32))


def smoothed(kind: int, fraction: float) -> int:
    """The number of loss `kind` with label smoothing, which is rounded to a multiple of 1e-6.

    The target of a row is 1 - fraction for its class, and in addition fraction / C for each of the
    C classes (Szegedy et al. 2016, "Rethinking the Inception Architecture for Computer Vision").
    Only gradients differ: the losses that kernels report are those of `kind`.
    """
    return kind + SMOOTHED * round(1e6 * fraction)


def unsmoothed(kind: int) -> tuple[int, float]:
    """The number of the loss without label smoothing, and the fraction."""
    return (kind % SMOOTHED, 1e-6 * (kind // SMOOTHED)) if kind >= SMOOTHED else (kind, 0.0)


def add_totals(part: NDArray[np.float64], totals: NDArray[np.float64]) -> None:
    """totals[TOTALS] += part, the totals of other rows."""
    skipped_row = max(part[SKIPPED_ROW], totals[SKIPPED_ROW])
    totals += part
    totals[SKIPPED_ROW] = skipped_row


class Hyper(NamedTuple):
    """The constants of one optimizer step. `rate` includes the bias correction, if there is one.

    If steps are captured and replayed (`Device.capture`), the rate is a float64[1] of the backend,
    which a step reads when it runs; the other numbers keep the values they had when captured.
    """

    rate: float
    l2: float
    momentum: float  # beta1 of Adam
    beta2: float
    epsilon: float


class Slots(NamedTuple):
    """Optimizer slots of a tensor, in its shape; [0, 0] where the optimizer has none.

    Their meaning is stated in hogbatch.config.optimizers.
    """

    first: Floats
    second: Floats


class Links(NamedTuple):
    """Scratch for updates of sparse layers on the CPU: linked lists of the occurrences of features.

    `head`[F] is -1 everywhere before and after each call; the others hold the batch's n values.
    """

    head: NDArray[np.int32]
    following: NDArray[np.int32]  # next occurrence of the same feature, or -1
    member: NDArray[np.int32]  # row of the batch that an occurrence belongs to
    touched: NDArray[np.int32]  # distinct features in order of first occurrence


class Kernels(Protocol):
    """One backend. A module with these functions is a backend."""

    def operand_type(self, params: np.dtype[Any]) -> np.dtype[Any]:
        """The type of `Operands`, given that of the parameters."""

    def to_operands(self, values: Floats, out: Operands) -> None:
        """out[P] = values[P], rounded to the type of `out`."""

    def gather(self, inputs: Inputs, rows: Rows, out: Operands) -> None:
        """out[B, K] = inputs of `rows`, dense or CSR, zero beyond column F."""

    def dense_forward(
        self,
        x: Operands,
        weights: Operands,
        bias: Operands | Floats,
        activation: int,
        width: int,
        out: Operands | Floats,
    ) -> None:
        """out[B, H] = f(x[B, K] @ weights[K, H] + bias[H]); columns from `width` on are zero.

        Every activation keeps nan, so that the loss detects it. The padding of a row that is not
        finite may be nan. `out` may be operands of another product or floats; `bias` has the same
        type.
        """

    def csr_forward(
        self,
        inputs: Inputs,
        rows: Rows,
        weights: Floats,
        bias: Floats,
        activation: int,
        width: int,
        out: Operands | Floats,
    ) -> None:
        """`dense_forward` with x the CSR inputs of `rows`; the parameters are not rounded."""

    def drop(
        self, fraction: float, key: Any, layer: int, numbers: Rows, width: int, out: Operands
    ) -> None:
        """Leave out some outputs out[B, H] of hidden layer `layer`; see `kernels.dropout`.

        `key` is a uint32[1] of the backend, and `numbers`[B] are row numbers in the set.
        """

    def output_major_forward(
        self, x: Operands, weights: Operands, bias: Floats, width: int, out: Floats
    ) -> None:
        """Linear `dense_forward` with output-major weights[H, K]."""

    def activate_backward(self, kind: int, activated: Operands, grad: Operands) -> None:
        """grad[B, H] *= f'(z), from activated[B, H] = f(z)."""

    def loss_gradient(
        self,
        kind: int,
        labels: Labels,
        rows: Rows,
        numbers: Rows,
        width: int,
        scores: Floats,
        grad: Operands,
        totals: NDArray[np.float64],
    ) -> None:
        """grad[B, H] = d(mean loss)/d(scores); totals[LOSS] += sum of losses; see `smoothed`.

        Each loss is multiplied by the weight of its row, and the mean is its sum over B.
        `width` = C real columns. A row with a loss or a score that is not finite is counted in
        totals[SKIPPED] instead, its gradient is zero, and totals[SKIPPED_ROW] becomes 1 + its
        number, if that is higher. `numbers`[B] are the numbers of the `rows`, which differ from
        them if `rows` are positions in gathered labels. (The loss of an infinite score may be 0,
        but 0 times a value that overflowed is nan.) A row without labels has loss and gradient 0
        if the loss is a softmax over label lists. A loss of numbers is the sum over the C targets
        of a row.
        """

    def forget_not_finite(self, totals: NDArray[np.float64], values: Operands) -> None:
        """Set values[...] that are not finite to 0, if totals[SKIPPED] counts any row.

        A skipped row has gradient 0, but 0 times a value that overflowed is nan.
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

        LABEL_LISTS: precision at 1, 3, 5. Of the other losses, NORMALISED: rows whose class has the
        highest score; BINARY: rows whose score has the sign of the label; else squared errors of
        the predictions, which are the scores, or for POISSON exp(min(score, LARGEST_LOG)), summed
        over the targets. A row with a score that is not finite is counted in totals[SKIPPED].
        Losses and metrics are multiplied by the weights of the rows.
        """

    def dense_backward(
        self,
        grad: Operands,
        weights: Operands,
        activation: int,
        activated: Operands,
        out: Operands | Floats,
    ) -> None:
        """out[B, K] = (grad[B, H] @ weights[K, H].T) * f'(z), from activated[B, K] = f(z).

        f is the `activation` of the layer below. If f is linear, `activated` is not read.
        """

    def scale(self, fraction: float, grad: Operands) -> None:
        """grad[B, H] *= fraction."""

    def bound_rows(self, kind: int, hyper: Hyper, batch: int, x: Operands, grad: Operands) -> None:
        """grad[B, H] *= min(1, FURTHEST batch / (rate |x[b]|²)) for each row b of x[B, K].

        `batch` is the number of rows that step together; x may hold only some of them. If the
        optimizer is BOUNDED, a row of norm |x| moves its own pre-activations by rate |x|² / batch
        times its gradient (with VELOCITY, 1 / (1 - momentum) times as far), so one outlier could
        ruin a model that has trained for hours. Normalised LMS has the same bound (Nagumo & Noda
        1967), with FURTHEST = 1 and a batch of 1. Other optimizers normalise their own steps.
        """

    def bound_layers(
        self,
        kind: int,
        hyper: Hyper,
        batch: int,
        x: tuple[Operands, ...],
        grads: tuple[Operands, ...],
    ) -> None:
        """`bound_rows` for several layers: grads[l][B, H] with the inputs x[l][B, K]."""

    def csr_bound_rows(
        self, kind: int, hyper: Hyper, inputs: Inputs, rows: Rows, grad: Operands
    ) -> None:
        """`bound_rows` with x the CSR inputs of `rows`, which are the whole batch."""

    def weight_gradient(self, x: Operands, grad: Operands, out: Floats, bias: Floats) -> None:
        """out[K, H] = x[B, K].T @ grad[B, H]; bias[H] = sum over B of grad ([0]: not needed)."""

    def bias_gradient(self, grad: Operands, out: Floats) -> None:
        """out[H] = sum over B of grad[B, H]."""

    def add_weight_gradient(
        self, fraction: float, x: Operands, grad: Operands, out: Floats
    ) -> None:
        """out[K, H] += fraction * x[B, K].T @ grad[B, H]: the part of some rows of a batch."""

    def add_bias_gradient(self, fraction: float, grad: Operands, out: Floats) -> None:
        """out[H] += fraction * sum over B of grad[B, H]."""

    def step(
        self, kind: int, hyper: Hyper, gradient: Floats, slots: Slots, weights: Floats
    ) -> None:
        """One optimizer step on a tensor of any shape, in place.

        g = gradient + l2 * weights, or the gradient if the optimizer is DECOUPLED. The rules are
        stated in hogbatch.config.optimizers; the caller computes the bias correction.
        ADAPTIVE optimizers treat a `gradient` that is not below LARGEST, or not finite, as 0.
        """

    def csr_scratch(self, features: int, width: int) -> Any:
        """The `scratch` of `csr_step` for weights[F, H]; one step after the other may use it."""

    def csr_step(
        self,
        kind: int,
        hyper: Hyper,
        inputs: Inputs,
        rows: Rows,
        grad: Operands,
        scratch: Any,
        slots: Slots,
        weights: Floats,
    ) -> None:
        """`step` with gradient X.T @ grad[B, H], only on the rows of weights[F, H] that X touches.

        A feature that occurs in several rows of the batch is stepped once, with their sum.
        """
