import numpy as np
import pytest

import hogbatch
from hogbatch.config.losses import LOSSES
from hogbatch.data.batch import NO_WEIGHTS, multi_labels, single_labels
from hogbatch.model.prior import prior_scores

WEIGHTS = np.array([1, 2, 1, 4], np.float32)


@pytest.mark.parametrize(
    ("loss", "classes", "weights", "expected"),
    [
        ("logistic", [0, 1, 0, 0], NO_WEIGHTS, [0.75, 0.25]),
        ("logistic", [0, 1, 0, 1], WEIGHTS, [0.25, 0.75]),
        ("softmax", [2, 0, 2, 1], WEIGHTS, [0.25, 0.5, 0.25]),
        ("softmax", [0, 0, 2, 2], NO_WEIGHTS, [4 / 9, 1 / 9, 4 / 9]),  # no row has the second one
    ],
)
def test_probabilities_are_the_frequencies_of_classes(loss, classes, weights, expected):
    labels = single_labels(np.array(classes, np.float32))._replace(weights=weights)
    outputs = 1 if loss == "logistic" else 3
    scores = prior_scores(LOSSES[loss], labels, outputs).astype(np.float32)
    assert LOSSES[loss].probabilities(scores[np.newaxis])[0] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [(NO_WEIGHTS, [3 / 4, 1 / 9, 1 / 4, 3 / 4]), (WEIGHTS, [1 / 2, 1 / 17, 1 / 8, 3 / 4])],
)
def test_probabilities_of_independent_labels_are_their_frequencies(weights, expected):
    labels = multi_labels(np.array([0, 3, 4, 6, 7]), np.array([0, 2, 3, 0, 0, 3, 3], np.int32))
    scores = prior_scores(LOSSES["multilabel"], labels._replace(weights=weights), 4)
    assert LOSSES["multilabel"].probabilities(scores) == pytest.approx(expected)


@pytest.mark.parametrize("loss", ["hinge", "squared", "poisson", "multilabel-softmax"])
def test_other_scores_are_zero(loss):
    labels = single_labels(np.array([0, 1, 1], np.float32))
    if loss == "multilabel-softmax":
        labels = multi_labels(np.array([0, 1, 2]), np.array([0, 0], np.int32))
    assert not prior_scores(LOSSES[loss], labels, 1).any()


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_training_begins_with_them(hidden):
    y = np.arange(100) % 10 == 0
    settings = {"epochs": 1, "lr": 1e-9, "test_fraction": 0, "validation_fraction": 0}
    run = hogbatch.train(
        np.eye(2)[y.astype(int)], y, sample_weight=1 + y, hidden=hidden, verbose=False, **settings
    )
    bias = run.model.tensors[f"layers.{len(hidden)}.bias"]
    assert bias == pytest.approx(np.log([20 / 90]), rel=1e-4)
