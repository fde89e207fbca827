import numpy as np
import pytest

from hogbatch.config.losses import LOSSES
from hogbatch.data.batch import single_labels
from hogbatch.model.metrics import Scored, measure
from hogbatch.model.temperature import LARGEST, best_temperature

ROWS = 4000


def drawn(loss, temperature, weights=()):
    """Rows whose scores are `temperature` times those by which their labels were drawn."""
    random = np.random.default_rng(0)
    scores = random.normal(size=(ROWS, 1 if loss == "logistic" else 4))
    logs = np.hstack([np.zeros_like(scores), scores]) if loss == "logistic" else scores
    labels = (logs + random.gumbel(size=logs.shape)).argmax(axis=1).astype(np.float32)
    given = single_labels(labels)._replace(weights=np.array(weights, np.float32))
    return Scored(LOSSES[loss], given, (temperature * scores).astype(np.float32))


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.parametrize("temperature", [0.2, 1.0, 9.0])
def test_no_temperature_has_a_lower_loss_than_the_best_one(loss, temperature):
    rows = drawn(loss, temperature, np.random.default_rng(1).uniform(size=ROWS))
    best = best_temperature(rows)
    assert best == pytest.approx(temperature, rel=0.1)

    def loss_at(each):
        return measure(Scored(rows.loss, rows.labels, rows.scores / each), "log_loss")["log_loss"]

    near = [loss_at(best * factor) for factor in (0.9, 0.98, 1.02, 1.1)]
    assert loss_at(best) < min(near)


def test_rows_without_an_error_do_not_make_a_model_certain():
    """The fraction of errors that a temperature allows for falls with the number of rows."""
    few, many = (best_temperature(separated(rows)) for rows in (20, 2000))
    assert 1 / LARGEST < many < few < 1


def separated(rows):
    labels = np.arange(rows) % 2
    scores = np.where(labels, 2, -2).astype(np.float32)[:, None]
    return Scored(LOSSES["logistic"], single_labels(labels.astype(np.float32)), scores)


def test_scores_that_say_nothing_are_not_divided():
    labels = single_labels(np.zeros(3, np.float32))
    for score in (0.0, np.nan):
        rows = Scored(LOSSES["softmax"], labels, np.full((3, 4), score, np.float32))
        assert best_temperature(rows) == 1
