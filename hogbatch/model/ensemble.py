"""The mean prediction of the members of an ensemble, as scores."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.losses import Loss, OfNumbers

Doubles = NDArray[np.float64]


@np.errstate(invalid="ignore", divide="ignore")  # callers check whether scores are finite
def mean_scores(loss: Loss, scores: Doubles) -> Doubles:
    """The scores [B, C] of the mean prediction of K models with scores[K, B, C].

    That is the mean of their probabilities or of the numbers that they predict; with a loss that
    defines neither, of their scores.
    """
    if isinstance(loss, OfNumbers):
        predicted: Any = [loss.predict(each) for each in scores]
        return loss.scores_of(np.mean(predicted, axis=0)).reshape(scores.shape[1:])
    if not loss.has_probabilities:
        return np.asarray(scores.mean(axis=0))
    if loss.normalised:
        logs = scores - scores.max(axis=2, keepdims=True)
        logs -= np.log(np.exp(logs).sum(axis=2, keepdims=True))
        return _log_mean(logs)
    likely, unlikely = (_log_mean(-np.logaddexp(0, each)) for each in (-scores, scores))
    return likely - unlikely  # the log odds


def _log_mean(logs: Doubles) -> Doubles:
    """The logarithm of the mean over K of exp(logs[K, B, C])."""
    return np.asarray(np.logaddexp.reduce(logs, axis=0) - np.log(len(logs)))
