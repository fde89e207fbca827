"""The table of losses: one object per loss.

This is the only list of losses. The numbers and sets of numbers that kernels compare
(`hogbatch.kernels.contract`), the choices of `--loss` and the labels that each accepts are derived
from it, and no other module compares a loss's name. Kernels compute the losses and gradients; their
formulas are in `kernels/reference_losses.py`.

The command line reads this table to describe its flags, so NumPy is imported only where it is used.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from hogbatch.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

PRECISIONS: Final = ("P@1", "P@3", "P@5")
QUANTILE: Final = r"quantile:0?\.(?P<decimals>(?!0+$)\d{1,6})"  # names of quantile losses
STEEPEST: Final = 1000.0  # slope of the Poisson loss from which on it is a straight line
LARGEST_LOG: Final = 80.0  # of a predicted mean, which is then within the range of float32


class LossAndMetrics(NamedTuple):
    """The result of an evaluation."""

    loss: float  # mean per row
    metrics: dict[str, float]


@dataclass(frozen=True)
class Loss(ABC):
    """A loss, and how to interpret the scores of a model that was trained with it.

    The docstring of each subclass is the loss of one row with scores z and label y.
    """

    name: str
    kind: int  # its number in kernels
    automatic: bool = True  # chosen by --loss auto for its kind of labels
    automatic_if_hashed: bool = False  # chosen by --loss auto if the output layer is hashed
    suits_hashing: bool = True  # can be trained on some of the outputs
    alias: str | None = None  # name of another loss that selects this one for its kind of labels
    rate_fraction: float = 1.0  # fraction of the learning rate, for larger gradients
    level: float | None = None  # of numbers: the quantile of labels that is predicted; None: a mean

    # Class attributes, set by subclasses.
    encoding: ClassVar[str]  # kind of labels, as in `hogbatch.data.encode.Encoding.kind`
    metrics: ClassVar[tuple[str, ...]]  # the first one is the main metric in reports
    bounded_gradient: ClassVar[bool] = True  # the derivative by each score, for any label
    has_probabilities: ClassVar[bool] = True
    has_predictions: ClassVar[bool] = True  # the scores determine which labels a row has
    normalised: ClassVar[bool] = False  # probabilities sum to 1 over the outputs of a row
    label_lists: ClassVar[bool] = False  # a row can have any number of labels

    def metric_values(self, metric_sums: Sequence[float], rows: float) -> dict[str, float]:
        """The metrics by name, from their sums over rows (kernel `loss_and_metrics`).

        `rows` is the number of rows, or the sum of their weights. All are nan if it is 0.
        """
        means = [total / rows if rows else math.nan for total in metric_sums]
        return dict(zip(self.metrics, means, strict=False))  # unused sums are 0

    def summed_metrics(self, targets: int) -> tuple[str, ...]:
        """The names of `metric_values`; none of several targets per row, whose units differ."""
        return self.metrics if targets == 1 else ()

    def in_units(self, mean_loss: float, metrics: dict[str, float], unit: float) -> LossAndMetrics:
        """Mean loss and metrics in the unit of the labels, if targets were labels / `unit`."""
        return LossAndMetrics(mean_loss, metrics)

    def readable(self, mean_loss: float) -> tuple[str, float]:
        """The name and the value by which people read a mean loss, in the unit of the labels."""
        return "loss", mean_loss

    def probabilities(self, scores: "Floats") -> "Floats":
        """float32 probabilities of scores[B, C], in the shape of scikit-learn's predict_proba.

        UsageError if this loss does not define probabilities.
        """
        self.expect_probabilities()
        raise NotImplementedError

    def expect_probabilities(self) -> None:
        """UsageError if this loss does not define probabilities."""
        if not self.has_probabilities:
            raise UsageError(
                f"loss {self.name} does not define probabilities; use decision values (scores)"
            )

    def expect_predictions(self) -> None:
        """UsageError if the scores do not determine which labels a row has."""
        if not self.has_predictions:
            raise UsageError(
                f"loss {self.name} ranks labels but does not decide how many apply: request the "
                "best K (top, --top K) or all probabilities (predict_proba, --proba)"
            )

    @abstractmethod
    def predict(self, scores: "Floats") -> "NDArray[Any]":
        """The most likely labels for scores[B, C], in the encoding of the training targets."""


class OneScore(Loss):
    """A loss with a single score, which is above 0 for the second of two labels."""

    encoding = "binary"
    metrics = ("accuracy",)

    def predict(self, scores: "Floats") -> "NDArray[Any]":
        """0 or 1: intp[B]."""
        likely: NDArray[Any] = scores[:, 0] > 0
        return likely.astype(int)


class Logistic(OneScore):
    """log(1 + exp(-m)), m = (2y - 1) z, y in {0, 1}."""

    def probabilities(self, scores: "Floats") -> "Floats":
        """[B, 2]; the columns are the first and the second label."""
        import numpy as np

        return _sigmoid(scores[:, :1] * np.array([-1, 1], np.float32))


class Hinge(OneScore):
    """max(0, 1 - m), m = (2y - 1) z, y in {0, 1}; the slope at the kink is 0."""

    has_probabilities = False


class Softmax(Loss):
    """-log(exp(z_y) / sum_c exp(z_c)), y a class."""

    encoding = "classes"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)
    normalised = True

    def probabilities(self, scores: "Floats") -> "Floats":
        """[B, C] with rows that sum to 1."""
        import numpy as np

        fractions: Floats = np.exp(scores - scores.max(axis=1, keepdims=True))
        fractions /= fractions.sum(axis=1, keepdims=True)
        return fractions

    def predict(self, scores: "Floats") -> "NDArray[Any]":
        """The first column with the highest score: intp[B]."""
        best: NDArray[Any] = scores.argmax(axis=1)
        return best


class SoftmaxOfLists(Softmax):
    """The mean of the softmax loss over the labels y of a row; 0 for a row without labels."""

    encoding = "multilabel"
    metrics = PRECISIONS
    label_lists = True
    has_predictions = False


class IndependentLabels(Loss):
    """sum_c log(1 + exp(z_c)) - y_c z_c, y_c in {0, 1} for each label c."""

    encoding = "multilabel"
    metrics = PRECISIONS
    label_lists = True

    def probabilities(self, scores: "Floats") -> "Floats":
        """[B, C], independent for each label."""
        return _sigmoid(scores)

    def predict(self, scores: "Floats") -> "NDArray[Any]":
        """bool[B, C], true where a label has a probability above 0.5."""
        return scores > 0


class OfNumbers(Loss):
    """A loss whose scores predict one number each; it is the sum over these targets.

    Labels are standardised, so a constant of a loss, such as the 1 of `Huber`, is a number of
    standard deviations of the training labels.
    """

    encoding = "real"
    metrics = ("rmse",)
    has_probabilities = False
    unit_power: ClassVar[int] = 1  # the loss is proportional to this power of the labels' unit

    def metric_values(self, metric_sums: Sequence[float], rows: float) -> dict[str, float]:
        """The root of the mean squared error."""
        return {"rmse": math.sqrt(metric_sums[0] / rows) if rows else math.nan}

    def in_units(self, mean_loss: float, metrics: dict[str, float], unit: float) -> LossAndMetrics:
        """The error is proportional to the unit, the loss to its power `unit_power`."""
        scaled = {name: value * unit for name, value in metrics.items()}
        return LossAndMetrics(mean_loss * unit**self.unit_power, scaled)

    def predict(self, scores: "Floats") -> "NDArray[Any]":
        """The scores themselves: float32[B], or [B, C] of several targets."""
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def scores_of(self, predictions: "NDArray[np.float64]") -> "NDArray[np.float64]":
        """The scores of these predictions, in their shape: the inverse of `predict`."""
        return predictions


class Squared(OfNumbers):
    """(z - y)² / 2, y a number. The prediction is the mean."""

    bounded_gradient = False
    unit_power = 2
    root: ClassVar[str] = "rmse"  # the root of the mean squared error

    def readable(self, mean_loss: float) -> tuple[str, float]:
        """The root of the mean squared error."""
        return self.root, math.sqrt(2 * mean_loss)


class SquaredLog(Squared):
    """(z - y)² / 2, y the logarithm log1p of a number of at least 0.

    The prediction is the mean of the logarithms, as a number.
    """

    encoding = "logs"
    root = "rmsle"  # of the logarithms

    def summed_metrics(self, targets: int) -> tuple[str, ...]:
        """None: the sums are of logarithms, but metrics are in the unit of the labels."""
        return ()


class Huber(OfNumbers):
    """(z - y)² / 2 where |z - y| <= 1, else |z - y| - 1/2.

    P. J. Huber 1964, "Robust Estimation of a Location Parameter".
    """

    unit_power = 2


class Absolute(OfNumbers):
    """|z - y|; the slope at the kink is 0. The prediction is the median."""


class Quantile(OfNumbers):
    """max(q (y - z), (1 - q) (z - y)), 0 < q < 1; the slope at the kink is 0.

    The prediction is the quantile q (Koenker & Bassett 1978, "Regression Quantiles"). `kind` is
    -1,000,000 q, so that kernels need no other argument.
    """


class Poisson(OfNumbers):
    """exp(z) - y + y (log y - z), y >= 0.

    This is half the deviance of a Poisson distribution. The prediction is its mean, exp(z), and a
    label is divided by the mean of the training labels, not shifted.
    Where exp(z) - y is above STEEPEST, the loss is continued as a straight line of this slope, so
    that it does not overflow after a step that went much too far.
    """

    encoding = "counts"
    bounded_gradient = False

    def predict(self, scores: "Floats") -> "NDArray[Any]":
        """exp(score), at most exp(LARGEST_LOG): float64[B], or [B, C] of several targets."""
        import numpy as np

        logs = super().predict(scores)
        means: NDArray[np.float64] = np.exp(np.minimum(logs, LARGEST_LOG, dtype=float))
        return means

    def scores_of(self, predictions: "NDArray[np.float64]") -> "NDArray[np.float64]":
        """log(predictions)."""
        import numpy as np

        return np.log(predictions)


_LOSSES: Final[tuple[Loss, ...]] = (
    Logistic("logistic", kind=0),
    Hinge("hinge", kind=1, automatic=False),
    Softmax("softmax", kind=2, automatic_if_hashed=True),
    # Its gradient is a sum over all labels, hence the smaller rate.
    IndependentLabels("multilabel", kind=3, suits_hashing=False, rate_fraction=0.5),
    SoftmaxOfLists(
        "multilabel-softmax", kind=5, automatic=False, automatic_if_hashed=True, alias="softmax"
    ),
    # Its gradient has no bound, hence the smaller rate.
    Squared("squared", kind=4, rate_fraction=0.2),
    SquaredLog("squared-log", kind=4, alias="squared", rate_fraction=0.2),
    Huber("huber", kind=6, automatic=False),
    Absolute("absolute", kind=7, automatic=False, level=0.5),
    Quantile("quantile:0.5", kind=-500_000, automatic=False, level=0.5),
    Poisson("poisson", kind=8, rate_fraction=0.2),
)


class LossTable(dict[str, Loss]):
    """The losses by name. It also contains a quantile loss for each name quantile:Q, 0 < Q < 1."""

    def __missing__(self, name: str) -> Loss:
        if name not in self:
            raise KeyError(name)
        millionths = _millionths(name)
        return Quantile(name, kind=-millionths, automatic=False, level=millionths / 1e6)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and _millionths(name) > 0)


def _millionths(name: str) -> int:
    """1,000,000 Q if `name` is quantile:Q; else 0."""
    found = re.fullmatch(QUANTILE, name)
    return int(found["decimals"].ljust(6, "0")) if found else 0


LOSSES: Final = LossTable({loss.name: loss for loss in _LOSSES})
# Of --loss; that of logarithms is chosen by --label-transform.
CHOICES: Final = tuple(name for name, loss in LOSSES.items() if loss.encoding != "logs")


def encodings_for(name: str) -> tuple[str, ...]:
    """The kinds of labels that the loss called `name` accepts, under its own name or an alias."""
    return tuple(loss.encoding for loss in _named(name))


def _named(name: str) -> list[Loss]:
    own = [LOSSES[name]] if name in LOSSES else []
    return [*own, *(loss for loss in _LOSSES if loss.alias == name)]


def choose_loss(name: str, encoding: str, *, hashed: bool = False) -> Loss:
    """The loss called `name`, or for "auto" the one for labels of kind `encoding`.

    `hashed`: the output layer is hashed. "softmax" selects the variant for classes or for lists of
    labels. UsageError if the loss does not support this kind of labels.
    """
    fitting = [loss for loss in _LOSSES if loss.encoding == encoding]
    if name == "auto":
        preferred = [loss for loss in fitting if hashed and loss.automatic_if_hashed]
        return next(iter(preferred), next(loss for loss in fitting if loss.automatic))
    for loss in _named(name):
        if loss.encoding == encoding:
            return loss
    raise UsageError(
        f"loss {name} expects {' or '.join(encodings_for(name))} labels; got {encoding} labels, "
        f"which need one of {', '.join(loss.name for loss in fitting)}"
    )


def _sigmoid(scores: "Floats") -> "Floats":
    """1 / (1 + exp(-scores)), without overflow, and accurate for very negative scores."""
    import numpy as np

    return np.exp(-np.logaddexp(np.float32(0), -scores))
