"""Metrics of an evaluation, from the scores that workers have stored in shared memory."""

import math
from typing import Any

import numpy as np

from hogbatch.config.losses import LOSSES, OfNumbers
from hogbatch.config.sets import SetName
from hogbatch.data.load import LoadedData
from hogbatch.events.records import Evaluation
from hogbatch.kernels.contract import RowScores
from hogbatch.model.metrics import Frequencies, Scored, measure
from hogbatch.model.network import Network
from hogbatch.run.setup import RunSetup


class SetMetrics:
    """Metrics of the sets of a run, from the scores that workers have `stored`."""

    def __init__(self, setup: RunSetup, stored: RowScores) -> None:
        self._setup, self._stored = setup, stored
        self._kept: RowScores | None = None

    def measure(self, name: SetName, metric: str | None) -> dict[str, float]:
        """Compute `metric`, or all metrics, of set `name`, which was evaluated last."""
        return self._measure(name, self._stored, metric)

    def keep(self, evaluation: Evaluation | None) -> None:
        """Copy the scores of the kept model, if nothing but the validation rows describes it.

        `evaluation`, the last one, is that of the kept model; None if it was not evaluated.
        """
        plan = self._setup.plan
        if plan.keeps_scores and not plan.test_rows:
            known = evaluation is not None and evaluation.validation_values
            stored = self._stored
            self._kept = RowScores(stored.scores.copy(), stored.best.copy()) if known else None

    def of_kept(self) -> dict[str, float]:
        """All metrics of the validation rows, if the scores of the kept model are known."""
        return {} if self._kept is None else self._measure("validation", self._kept, None)

    def _measure(self, name: SetName, scores: RowScores, metric: str | None) -> dict[str, float]:
        return measure_set(self._setup.loaded, self._setup.network, name, scores, metric)


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
