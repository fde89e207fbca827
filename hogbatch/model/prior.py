"""The scores with which training begins: those that are best for rows without features."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.losses import Loss
from hogbatch.data.batch import Labels
from hogbatch.model.metrics import cells_of, weights_of

LEAST_ROWS: Final = 0.5  # counted for a class without rows, so that its logarithm is finite


def prior_scores(loss: Loss, labels: Labels, outputs: int) -> NDArray[np.float64]:
    """The scores [C] that express how frequent each class is in `labels`, with their weights.

    They are the logarithms of the frequencies minus their mean; for two classes their difference,
    the log odds of the second one; and for independent labels the log odds of each. Without them, a
    model of rare classes spends its first updates on frequencies (Lin et al. 2017, "Focal Loss for
    Dense Object Detection", section 3.3). They are 0 for losses without probabilities; for numbers,
    which are centred; and for the softmax of lists of labels, whose models became no better.
    """
    independent = loss.label_lists and not loss.normalised
    if not loss.has_probabilities or not (independent or loss.encoding in ("binary", "classes")):
        return np.zeros(outputs)
    rows, columns = cells_of(labels)
    weights = weights_of(labels, max(len(labels.values), len(labels.indptr) - 1))
    counts = np.bincount(columns, weights[rows], 2 if loss.encoding == "binary" else outputs)
    logs = np.log(counts.clip(LEAST_ROWS))
    if independent:
        return np.asarray(logs - np.log((weights.sum() - counts).clip(LEAST_ROWS)))
    return np.diff(logs) if loss.encoding == "binary" else np.asarray(logs - logs.mean())
