"""Metrics of the sets of a run, from the scores that workers have stored in shared memory."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from hogbatch.config.losses import LOSSES, OfNumbers
from hogbatch.config.sets import SetName
from hogbatch.events.event import Evaluation
from hogbatch.events.recorder import RunRecorder
from hogbatch.kernels.contract import RowScores
from hogbatch.model.metrics import Scored, best_threshold, measure
from hogbatch.model.temperature import best_temperature
from hogbatch.run.setup import RunSetup


class SetMetrics:
    """Computes metrics of the sets of a run; temperature and threshold of the kept model."""

    def __init__(self, setup: RunSetup, stored: RowScores, recorder: RunRecorder) -> None:
        """`stored` are the scores of the set that was evaluated last."""
        self._setup, self._stored, self._recorder = setup, stored, recorder
        plan, config = setup.plan, setup.config
        chooses = config.threshold is not None or config.temperature != "off"
        rows = slice(0 if plan.test_rows and not chooses else plan.validation_rows)
        self._kept = RowScores(stored.scores[rows].copy(), stored.best[rows].copy())

    def measure(self, name: SetName, metric: str | None) -> dict[str, float]:
        """Compute `metric`, or all metrics, of set `name`, which was evaluated last.

        Metrics that are not defined are left out. Those of the test rows are of the kept model.
        """
        scored = self._scored(name, self._stored)
        return _defined(self._by_threshold(scored) if name == "test" else scored, metric)

    def keep(self, evaluation: Evaluation | None) -> None:
        """Copy the scores of the model that is kept, which is completed later: training waits now.

        `evaluation` is the last one, of this model; None if it was not evaluated.
        """
        for kept, stored in zip(self._kept, self._stored, strict=True):
            np.copyto(kept, stored[: len(kept)])
        known = {} if evaluation is None else evaluation.validation_values
        self._recorder.complete = cache(partial(self._choose, known))

    def _choose(self, known: Mapping[str, float]) -> bool:
        """Choose temperature and threshold of the kept model, whose metrics were `known`."""
        chosen_by = self._setup.config.threshold
        if (temperature := self._temperature(evaluated=bool(known))) is not None:
            np.divide(self._kept.scores, np.float32(temperature), out=self._kept.scores)
            self._recorder.divide(self._setup.network.tensors()[-2:], temperature)
        if known and (temperature is not None or chosen_by is not None):
            scored = self._scored("validation", self._kept)
            if temperature is not None:
                self._recorder.add_metrics({}, _defined(scored, "log_loss").get("log_loss"))
            if chosen_by is not None:
                self._recorder.threshold = best_threshold(chosen_by, scored)
                scored = self._by_threshold(scored)
            for metric in filter(None, (*known, chosen_by)):
                self._recorder.add_metrics(_defined(scored, metric))
        return bool(known) and self._setup.plan.keeps_scores

    def _temperature(self, *, evaluated: bool) -> float | None:
        """The number by which the scores of the kept model are divided, if they are."""
        setting = self._setup.config.temperature
        if setting == "auto" and evaluated:
            return best_temperature(self._scored("validation", self._kept))
        return None if setting in ("auto", "off") else float(setting)

    def of_kept(self) -> dict[str, float]:
        """All metrics of the kept model on the validation rows, if there are no test rows."""
        if not self._recorder.complete() or self._setup.plan.test_rows:
            return {}
        return _defined(self._by_threshold(self._scored("validation", self._kept)), None)

    def _by_threshold(self, rows: Scored) -> Scored:
        """`rows` with the decision threshold of the kept model."""
        return replace(rows, threshold=self._recorder.threshold or 0.5)

    def _scored(self, name: SetName, stored: RowScores) -> Scored:
        data, loss = self._setup.loaded, LOSSES[self._setup.network.loss]
        labels, encoding, rows = data.sets[name].labels, data.encoding, data.set_sizes[name].rows
        scores: Any = stored.scores[:rows] if stored.scores.size else None
        if isinstance(loss, OfNumbers):  # in the unit of the labels
            shape = scores.shape
            scores = encoding.predictions_of(loss.predict(scores)).reshape(shape)
            true: Any = encoding.numbers_of(labels.values.reshape(shape))
            labels = labels._replace(values=true.reshape(-1))
        best = stored.best[:rows] if scores is None else None
        return Scored(loss, labels, scores, best, data.label_frequencies)


def _defined(rows: Scored, metric: str | None) -> dict[str, float]:
    """`metric`, or all metrics, that are defined."""
    values = measure(rows, metric)
    return {name: value for name, value in values.items() if math.isfinite(value)}
