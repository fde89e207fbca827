"""The scores with which training begins: those that are best for rows without features."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.losses import Loss
from hogbatch.data.batch import Labels

LEAST_ROWS: Final = 0.5  # counted for a class without rows, so that its logarithm is finite


def prior_scores(loss: Loss, labels: Labels, outputs: int) -> NDArray[np.float64]:
    """The scores [C] that express how frequent each class is in `labels`, with their weights.

    They are the logarithms of the frequencies minus their mean, and for two classes their
    difference, the log odds of the second one. Without them, a model of rare classes spends its
    first updates on frequencies (Lin et al. 2017, "Focal Loss for Dense Object Detection", section
    3.3). They are 0 for losses without probabilities; for numbers, which are centred; and for
    lists of labels, whose models became no better by them.
    """
    if not loss.has_probabilities or loss.encoding not in ("binary", "classes"):
        return np.zeros(outputs)
    weights = labels.weights if len(labels.weights) else None
    counts = np.bincount(labels.values.astype(np.intp), weights, max(outputs, 2))
    logs = np.log(counts.clip(LEAST_ROWS))
    return np.diff(logs) if loss.encoding == "binary" else np.asarray(logs - logs.mean())
