import numpy as np
import pytest

import hogbatch
from hogbatch.events.event import BaselineMeasured
from hogbatch.run.assessment import no_better

BASELINE = BaselineMeasured("test", "no", 0.5, {"accuracy": 0.9})


@pytest.mark.parametrize(
    ("loss", "accuracy", "text"),
    [
        (0.4, 0.91, None),
        (0.4, 0.9, "the test accuracy is no better than that of always predicting no"),
        (0.5, 0.91, "the test loss is no better than that of always predicting no"),
        (0.6, 0.8, "the test accuracy and loss are no better than those of always predicting no"),
    ],
)
def test_a_result_that_is_no_better_than_the_baseline_is_stated(loss, accuracy, text):
    assert no_better(loss, {"accuracy": accuracy}, BASELINE) == text


def test_lower_errors_are_better():
    baseline = BaselineMeasured("validation", "the mean, 3", 8.0, {"rmse": 4.0})
    assert no_better(4.5, {"rmse": 3.0}, baseline) is None
    assert no_better(8.0, {"rmse": 4.0}, baseline).startswith("the validation rmse and loss are")


def test_an_error_in_the_assessment_does_not_cost_the_model(tmp_path, monkeypatch):
    def fail(components, finish):
        raise MemoryError("of the assessment")

    monkeypatch.setattr("hogbatch.run.training.assess", fail)
    X = np.random.default_rng(0).normal(size=(100, 3))
    with pytest.raises(MemoryError, match="of the assessment"):
        hogbatch.train(X, X[:, 0], hidden=(), epochs=1, run_dir=tmp_path / "run", verbose=False)
    assert hogbatch.load_model(tmp_path / "run" / "model.safetensors").predict(X).shape == (100,)
