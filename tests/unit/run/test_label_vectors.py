"""The weights of label vectors, and the temperature of models with them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from hogbatch.config.train import TrainConfig
from hogbatch.data.batch import Examples, dense_inputs, multi_labels
from hogbatch.run import label_vectors
from hogbatch.run.label_vectors import Setting, Sources, choose, decide, divided, temperature_of
from tests.support.trained_models import model_for

RANDOM = np.random.default_rng(5)
INPUTS = dense_inputs(RANDOM.standard_normal((4000, 5)).astype(np.float32))


@pytest.mark.parametrize("temperature", [1.0, 8.0])
def test_it_undoes_what_makes_the_differences_of_scores_too_large(temperature):
    model = replace(model_for("multilabel-softmax"), scaler=None)
    chances = np.exp(model.scores(INPUTS).astype(np.float64))
    below = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1)
    labels = (RANDOM.random((len(below), 1)) > below[:, :-1]).sum(axis=1)
    lists = multi_labels(np.arange(len(labels) + 1), labels.astype(np.int32))
    rows = Examples(INPUTS, lists, 5)
    found = temperature_of(divided(model, 1 / temperature), rows)
    assert found == pytest.approx(temperature, rel=0.1)


@pytest.mark.parametrize(("given", "temperature"), [("3:0.5", 1.0), ("3:0.5:2.5", 2.5)])
def test_without_validation_rows_the_user_sets_the_temperature(given, temperature):
    config = TrainConfig("data", label_vectors=given, nearest_rows="off")
    found = decide(None, Sources(None, None, None), config, None)
    assert found == (Setting(3.0, 0.5), temperature)


@pytest.mark.parametrize("best", [4.0, 32.0, 128.0])
def test_larger_weights_are_tried_while_the_largest_one_is_the_best(monkeypatch, best):
    def measure_best(model, sources, settings, rows):
        return SimpleNamespace(setting=min(settings, key=lambda each: abs(each.weight - best)))

    monkeypatch.setattr(label_vectors, "measure_best", measure_best)
    config = TrainConfig("data", nearest_rows="off")
    assert choose(None, Sources(None, None, None), config, None).weight == best
