"""Metrics of an evaluation, from the scores that workers have stored in shared memory."""

import math
from typing import Any

import numpy as np

from hogbatch.config.losses import LOSSES, OfNumbers
from hogbatch.config.sets import SetName
from hogbatch.data.load import LoadedData
from hogbatch.kernels.contract import RowScores
from hogbatch.model.metrics import Frequencies, Scored, measure
from hogbatch.model.network import Network


def measure_set(
    data: LoadedData, network: Network, name: SetName, stored: RowScores, metric: str | None
) -> dict[str, float]:
    """Compute `metric`, or all metrics, of the rows of set `name`, whose scores are `stored`.

    Metrics that are not defined are left out.
    """
    loss, labels, encoding = LOSSES[network.loss], data.sets[name].labels, data.encoding
    rows = data.set_sizes[name].rows
    scores: Any = stored.scores[:rows] if stored.scores.size else None
    if isinstance(loss, OfNumbers):  # in the unit of the labels
        predicted = loss.predict(scores).astype(np.float64)
        scores = (predicted * encoding.scale + encoding.offset)[:, np.newaxis]
        true: Any = labels.values.astype(np.float64) * encoding.scale + encoding.offset
        labels = labels._replace(values=true)
    frequencies = None
    if (of_label := data.label_frequencies) is not None:
        frequencies = Frequencies(data.train_sizes.rows, of_label)
    best = stored.best[:rows] if scores is None else None
    metrics = measure(Scored(loss, labels, scores, best, frequencies=frequencies), metric)
    return {each: value for each, value in metrics.items() if math.isfinite(value)}
