"""The losses: one object per loss, in one table.

This is the only list of losses. The numbers and sets of numbers that kernels compare
(`hogbatch.kernels.contract`), the choices of `--loss` and the labels that each accepts are derived
from it, and no other module compares a loss's name. Formulas and gradients are computed by the
kernels: `kernels/reference.py` states them.

The command line reads this table to describe its flags, so NumPy is imported only where it is used.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from hogbatch.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

PRECISIONS: Final = ("P@1", "P@3", "P@5")


class LossAndMetrics(NamedTuple):
    """The result of an evaluation."""

    loss: float  # mean per row
    metrics: dict[str, float]


@dataclass(frozen=True)
class Loss:
    """A loss, with the meaning of the scores that are trained with it.

    Subclasses differ in what scores mean. Each states its formula for one row, z its scores and y
    its label.
    """

    name: str
    kind: int  # its number in kernels
    automatic: bool = True  # chosen by --loss auto for its labels
    automatic_if_hashed: bool = False  # chosen instead where the output layer is hashed
    suits_hashing: bool = True  # can be trained on some of the outputs
    alias: str | None = None  # a name of another loss that means this one, for this one's labels
    rate_fraction: float = 1.0  # of the learning rate, where gradients are larger than usual

    # Properties of a subclass.
    encoding: ClassVar[str]  # the kind of labels it is for: `hogbatch.data.encode.Encoding.kind`
    metrics: ClassVar[tuple[str, ...]]  # the first one leads reports
    higher_is_better: ClassVar[bool] = True  # of the metrics
    bounded_gradient: ClassVar[bool] = True  # by each score, whatever the label
    has_probabilities: ClassVar[bool] = True
    normalised: ClassVar[bool] = False  # over all outputs of a row: a softmax
    label_lists: ClassVar[bool] = False  # a row has any number of labels

    def metric_values(self, metric_sums: Sequence[float], rows: int) -> dict[str, float]:
        """The metrics by name, from the sums that `loss_and_metrics` left over `rows` rows.

        All are nan if `rows` is 0.
        """
        means = [total / rows if rows else math.nan for total in metric_sums]
        return dict(zip(self.metrics, means, strict=False))  # unused sums are 0

    def in_units(self, mean_loss: float, metrics: dict[str, float], unit: float) -> LossAndMetrics:
        """Mean loss and metrics in the unit of the labels, if targets were labels / `unit`."""
        return LossAndMetrics(mean_loss, metrics)

    def ranking(self, metrics: dict[str, float]) -> float:
        """The leading metric as a number of which the lower is the better."""
        leading = next(iter(metrics.values()))
        return 1.0 - leading if self.higher_is_better else leading

    def probabilities(self, scores: "Floats") -> "Floats":
        """float32 probabilities of scores[B, C], in the shape of scikit-learn's predict_proba.

        UsageError if scores of this loss are not likelihoods.
        """
        self.expect_probabilities()
        raise NotImplementedError

    def expect_probabilities(self) -> None:
        """UsageError if scores of this loss are not likelihoods."""
        if not self.has_probabilities:
            raise UsageError(
                f"loss {self.name} gives no probabilities; use decision values instead"
            )

    def expect_predictions(self) -> None:
        """UsageError if scores of this loss do not decide which labels a row has."""

    def predict(self, scores: "Floats") -> "NDArray[Any]":
        """The labels of scores[B, C], encoded as kernels take them."""
        raise NotImplementedError

    def measure(
        self, predicted: "NDArray[np.float64]", labels: "NDArray[np.float64]"
    ) -> LossAndMetrics:
        """Loss and metrics of predictions [N] of real labels [N], both in the labels' own unit.

        Rows whose loss is not finite are not counted.
        """
        raise NotImplementedError


class OneScore(Loss):
    """A loss whose only score is above 0 for the second of two labels."""

    encoding = "binary"
    metrics = ("accuracy",)

    def predict(self, scores: "Floats") -> "NDArray[Any]":
        """0 or 1: intp[B]."""
        likely: NDArray[Any] = scores[:, 0] > 0
        return likely.astype(int)


class Logistic(OneScore):
    """log(1 + exp(-m)), m = (2y - 1) z, y in {0, 1}."""

    def probabilities(self, scores: "Floats") -> "Floats":
        """[B, 2], the second label last."""
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
        """The column with the highest score: intp[B]; of equal ones the first."""
        best: NDArray[Any] = scores.argmax(axis=1)
        return best


class SoftmaxOfLists(Softmax):
    """The mean of the softmax loss over the labels y of a row; 0 for a row without labels."""

    encoding = "multilabel"
    metrics = PRECISIONS
    label_lists = True

    def expect_predictions(self) -> None:
        raise UsageError(
            f"loss {self.name} ranks labels and does not decide how many are right: ask for the "
            "best K (top, --top K) or for all probabilities (predict_proba, --proba)"
        )


class IndependentLabels(Loss):
    """sum_c log(1 + exp(z_c)) - y_c z_c, y_c in {0, 1} for each label c."""

    encoding = "multilabel"
    metrics = PRECISIONS
    label_lists = True

    def probabilities(self, scores: "Floats") -> "Floats":
        """[B, C], each label by itself."""
        return _sigmoid(scores)

    def predict(self, scores: "Floats") -> "NDArray[Any]":
        """bool[B, C], true where a label is likelier than not."""
        likely: NDArray[Any] = scores > 0
        return likely


class Squared(Loss):
    """(z - y)² / 2, y a number."""

    encoding = "real"
    metrics = ("rmse",)
    higher_is_better = False
    bounded_gradient = False
    has_probabilities = False

    def metric_values(self, metric_sums: Sequence[float], rows: int) -> dict[str, float]:
        """The root of the mean squared error."""
        return {"rmse": math.sqrt(metric_sums[0] / rows) if rows else math.nan}

    def in_units(self, mean_loss: float, metrics: dict[str, float], unit: float) -> LossAndMetrics:
        """The loss grows with the square of the unit, the error with the unit."""
        scaled = {name: value * unit for name, value in metrics.items()}
        return LossAndMetrics(mean_loss * unit**2, scaled)

    def predict(self, scores: "Floats") -> "NDArray[Any]":
        """The score itself, float32[B]."""
        return scores[:, 0]

    def measure(
        self, predicted: "NDArray[np.float64]", labels: "NDArray[np.float64]"
    ) -> LossAndMetrics:
        """The mean over the rows with a finite error."""
        import numpy as np

        squares = (predicted - labels) ** 2
        counted = squares[np.isfinite(squares)]
        mean = float(counted.mean()) if len(counted) else math.nan
        return LossAndMetrics(mean / 2, self.metric_values([mean * len(counted)], len(counted)))


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
)

LOSSES: Final = {loss.name: loss for loss in _LOSSES}


def kinds_where(holds: Callable[[Loss], bool]) -> tuple[int, ...]:
    """The kernel numbers of all losses for which `holds`."""
    return tuple(loss.kind for loss in _LOSSES if holds(loss))


def encodings_for(name: str) -> tuple[str, ...]:
    """The kinds of labels that the loss called `name` accepts, under its own name or an alias."""
    return tuple(loss.encoding for loss in _LOSSES if name in (loss.name, loss.alias))


def choose_loss(name: str, encoding: str, *, hashed: bool = False) -> Loss:
    """The loss called `name`, or for "auto" the one for labels of kind `encoding`.

    `hashed`: the output layer is hashed. "softmax" is the right softmax for classes and for lists
    of labels. UsageError if the loss cannot learn such labels.
    """
    fitting = [loss for loss in _LOSSES if loss.encoding == encoding]
    if name == "auto":
        preferred = [loss for loss in fitting if hashed and loss.automatic_if_hashed]
        return next(iter(preferred), next(loss for loss in fitting if loss.automatic))
    for loss in fitting:
        if name in (loss.name, loss.alias):
            return loss
    raise UsageError(
        f"loss {name} expects {' or '.join(encodings_for(name))} labels; got {encoding} labels, "
        f"for which there is {', '.join(loss.name for loss in fitting)}"
    )


def can_hash(name: str) -> bool:
    """Whether an output layer trained with --loss `name` may be hashed by default."""
    return name not in LOSSES or LOSSES[name].suits_hashing


def _sigmoid(scores: "Floats") -> "Floats":
    """1 / (1 + exp(-scores)), without overflow, and exact in the far negative tail."""
    import numpy as np

    result: Floats = np.exp(-np.logaddexp(np.float32(0), -scores))
    return result
