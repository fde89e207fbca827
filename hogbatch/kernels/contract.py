"""What the backends share: NumPy (`kernels.reference`), GPUs (`kernels.gpu`) and compiled loops.

Shape letters, with the same meaning in the whole package:
    B rows of a batch    N rows of a set        F features    n stored values
    K inputs of a layer  H outputs of a layer   C real outputs of the last layer
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.config import losses, metrics, optimizers

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

LEAST_VARIANCE: Final = 1e-5  # added to that of layer normalisation, as in PyTorch
CLOSED: Final = 1e4  # its sigmoid is exactly 1, and that of -CLOSED 0

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
LABEL_LISTS: Final = tuple(loss.kind for loss in losses.LOSSES.values() if loss.label_lists)
NORMALISED: Final = tuple(loss.kind for loss in losses.LOSSES.values() if loss.normalised)
BINARY: Final = tuple(loss.kind for loss in losses.LOSSES.values() if loss.encoding == "binary")
STEEPEST: Final = losses.STEEPEST
SMOOTHED: Final = 16  # from here on, the numbers of losses with label smoothing: `smoothed`
LARGEST_LOG: Final = losses.LARGEST_LOG

_SPECS: Final = tuple(optimizers.OPTIMIZERS.values())
OPTIMIZERS: Final = {spec.name: spec.kind for spec in _SPECS}
SGD: Final = OPTIMIZERS["sgd"]
MOMENTUM: Final = OPTIMIZERS["momentum"]
ADAGRAD: Final = OPTIMIZERS["adagrad"]
ADAM: Final = OPTIMIZERS["adam"]
ADAPTIVE: Final = tuple(spec.kind for spec in _SPECS if spec.adaptive)
BIAS_CORRECTED: Final = tuple(spec.kind for spec in _SPECS if spec.bias_corrected)
BOUNDED: Final = tuple(spec.kind for spec in _SPECS if spec.bounded)
VELOCITY: Final = tuple(spec.kind for spec in _SPECS if spec.velocity)
ADDITIVE: Final = tuple(spec.kind for spec in _SPECS if spec.additive)
DECOUPLED: Final = tuple(spec.kind for spec in _SPECS if spec.decoupled)
IGNORES_ZEROS: Final = tuple(spec.kind for spec in _SPECS if spec.ignores_zeros)
SUMMED_SLOTS: Final = tuple(spec.kind for spec in _SPECS if spec.summed_slots)

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
    """The constants of one optimizer step. `rate` includes the correction of the update, if any.

    If steps are captured and replayed (`Device.capture`), the rate is a float64[1] of the backend,
    which a step reads when it runs; the other numbers keep the values they had when captured.
    """

    rate: float
    l2: float
    momentum: float  # beta1 of Adam
    beta2: float
    epsilon: float
    warm_up: float = 0.0  # updates in which the rate rises to its full value


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
