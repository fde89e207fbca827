"""Metrics of the sets of a run, from the scores that workers have stored in shared memory."""

import math
from typing import Any

import numpy as np

from hogbatch.config.losses import LOSSES, OfNumbers
from hogbatch.config.sets import SetName
from hogbatch.events.records import Evaluation
from hogbatch.kernels.contract import RowScores
from hogbatch.model.metrics import Frequencies, Scored, measure
from hogbatch.run.setup import RunSetup


class SetMetrics:
    """Computes metrics of the sets of a run."""

    def __init__(self, setup: RunSetup, stored: RowScores) -> None:
        """`stored` are the scores of the set that was evaluated last."""
        self._setup, self._stored = setup, stored
        self._kept: RowScores | None = None  # of the validation rows, by the kept model

    def measure(self, name: SetName, metric: str | None) -> dict[str, float]:
        """Compute `metric`, or all metrics, of set `name`, which was evaluated last.

        Metrics that are not defined are left out.
        """
        return self._measure(name, self._stored, metric)

    def keep(self, evaluation: Evaluation | None) -> None:
        """Copy the scores of the model that is kept, if there are no test rows to measure it on.

        `evaluation` is the last one, of this model; None if it was not evaluated.
        """
        plan, stored = self._setup.plan, self._stored
        if plan.keeps_scores and not plan.test_rows:
            known = evaluation is not None and evaluation.validation_values
            self._kept = RowScores(stored.scores.copy(), stored.best.copy()) if known else None

    def of_kept(self) -> dict[str, float]:
        """All metrics of the kept model on the validation rows, if its scores were copied."""
        return {} if self._kept is None else self._measure("validation", self._kept, None)

    def _measure(self, name: SetName, stored: RowScores, metric: str | None) -> dict[str, float]:
        data, loss = self._setup.loaded, LOSSES[self._setup.network.loss]
        labels, encoding, rows = data.sets[name].labels, data.encoding, data.set_sizes[name].rows
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
