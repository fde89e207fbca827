"""The losses: which labels they take, what they report, what their scores mean."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.errors import UsageError
from hogbatch.kernels import contract

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss; its formula and gradient are the kernels'."""

    name: str
    kind: int  # as kernels know it
    metrics: tuple[str, ...]  # the first one leads reports
    encodings: tuple[str, ...]  # kinds of hogbatch.data.encode.Encoding it can learn


def _loss(name: str, metrics: tuple[str, ...], encodings: tuple[str, ...]) -> Loss:
    return Loss(name, contract.LOSSES[name], metrics, encodings)


LOSSES: Final = {
    loss.name: loss
    for loss in (
        _loss("logistic", ("accuracy",), ("binary",)),
        _loss("hinge", ("accuracy",), ("binary",)),
        _loss("softmax", ("accuracy",), ("classes",)),
        _loss("multilabel", ("P@1", "P@3", "P@5"), ("multilabel",)),
        _loss("multilabel-softmax", ("P@1", "P@3", "P@5"), ("multilabel",)),
        _loss("squared", ("rmse",), ("real",)),
    )
}

# What `auto` means for each kind of label.
AUTO: Final = {
    "binary": "logistic",
    "classes": "softmax",
    "multilabel": "multilabel",
    "real": "squared",
}

# What a name means that another kind of label shares.
SHARED: Final = {("softmax", "multilabel"): "multilabel-softmax"}


def choose_loss(name: str, encoding: str) -> Loss:
    """The loss called `name`, or for "auto" the one for labels of kind `encoding`.

    "softmax" is the right softmax for classes and for lists of labels. UsageError when the loss
    cannot learn such labels.
    """
    exact = AUTO[encoding] if name == "auto" else SHARED.get((name, encoding), name)
    loss = LOSSES[exact]
    if encoding not in loss.encodings:
        fitting = ", ".join(other.name for other in LOSSES.values() if encoding in other.encodings)
        raise UsageError(
            f"loss {name} expects {' or '.join(loss.encodings)} labels; got {encoding} labels, "
            f"for which there is {fitting}"
        )
    return loss


class Measured(NamedTuple):
    """What an evaluation found."""

    loss: float  # mean per row
    metrics: dict[str, float]


def metric_values(loss: Loss, metric_sums: Sequence[float], rows: int) -> dict[str, float]:
    """The metrics by name, from the sums that `loss_and_metrics` left over `rows` rows.

    All are nan when no row was counted.
    """
    means = [hit / rows if rows else math.nan for hit in metric_sums]
    if loss.name == "squared":
        return {"rmse": math.sqrt(means[0])}
    return dict(zip(loss.metrics, means, strict=False))  # the sums a loss has no use for are 0


def in_units(loss: Loss, mean_loss: float, metrics: dict[str, float], unit: float) -> Measured:
    """Mean loss and metrics in the labels' own unit, from those of targets divided by `unit`."""
    if loss.name != "squared":
        return Measured(mean_loss, metrics)
    return Measured(mean_loss * unit**2, {name: value * unit for name, value in metrics.items()})


def probabilities(loss: Loss, scores: Floats) -> Floats:
    """float32 probabilities of scores[B, C], in the shape scikit-learn's predict_proba has.

    logistic [B, 2], softmax and multilabel-softmax [B, C] with rows that sum to 1, multilabel
    [B, C] with a probability for each label by itself. UsageError for hinge and squared, whose
    scores are no likelihoods.
    """
    if loss.name == "logistic":
        return _sigmoid(scores[:, :1] * np.array([-1, 1], np.float32))
    if loss.name in ("softmax", "multilabel-softmax"):
        fractions: Floats = np.exp(scores - scores.max(axis=1, keepdims=True))
        fractions /= fractions.sum(axis=1, keepdims=True)
        return fractions
    if loss.name == "multilabel":
        return _sigmoid(scores)
    raise UsageError(f"loss {loss.name} gives no probabilities; use decision values instead")


def _sigmoid(scores: Floats) -> Floats:
    """1 / (1 + exp(-scores)), without overflow, and exact in the far negative tail."""
    result: Floats = np.exp(-np.logaddexp(np.float32(0), -scores))
    return result
