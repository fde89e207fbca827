import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose

from hogbatch.data.encode import ENCODINGS
from hogbatch.errors import UsageError
from hogbatch.kernels import contract
from hogbatch.model.losses import AUTO, LOSSES, choose_loss, metric_values, probabilities

finite_scores = st.lists(
    st.lists(st.floats(-300, 300, width=32), min_size=3, max_size=3), min_size=1, max_size=5
).map(lambda rows: np.array(rows, np.float32))


def test_the_table_names_the_losses_of_the_kernels():
    assert {name: loss.kind for name, loss in LOSSES.items()} == contract.LOSSES


def test_labels_can_be_encoded_for_every_loss():
    assert set(ENCODINGS) == {"auto", *LOSSES}


def test_no_loss_has_more_metrics_than_the_kernels_have_sums():
    assert (
        max(len(loss.metrics) for loss in LOSSES.values()) == contract.TOTALS - contract.METRIC_SUMS
    )


@pytest.mark.parametrize("encoding", AUTO)
def test_auto_chooses_a_loss_that_takes_the_labels(encoding):
    assert encoding in choose_loss("auto", encoding).encodings


def test_a_named_loss_wins_over_the_automatic_one():
    assert choose_loss("hinge", "binary").name == "hinge"


@pytest.mark.parametrize(
    ("encoding", "name"), [("classes", "softmax"), ("multilabel", "multilabel-softmax")]
)
def test_softmax_is_a_word_for_classes_and_for_lists(encoding, name):
    assert choose_loss("softmax", encoding).name == name


def test_a_loss_that_cannot_learn_the_labels_names_those_that_can():
    with pytest.raises(UsageError, match=r"hinge expects binary labels; got classes .* softmax"):
        choose_loss("hinge", "classes")


@pytest.mark.parametrize("name", ["logistic", "hinge", "softmax"])
def test_accuracy_is_the_share_of_right_rows(name):
    assert metric_values(LOSSES[name], (3.0, 0.0, 0.0), 4) == {"accuracy": 0.75}


@pytest.mark.parametrize("name", ["multilabel", "multilabel-softmax"])
def test_precisions_are_means_over_rows(name):
    values = metric_values(LOSSES[name], (4.0, 2.0, 1.0), 4)
    assert values == {"P@1": 1.0, "P@3": 0.5, "P@5": 0.25}


def test_rmse_is_the_root_of_the_mean_squared_error():
    assert metric_values(LOSSES["squared"], (36.0, 0.0, 0.0), 4) == {"rmse": 3.0}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_metrics_of_no_rows_are_nan_and_keep_their_names(loss):
    values = metric_values(loss, (0.0, 0.0, 0.0), 0)
    assert tuple(values) == loss.metrics
    assert all(math.isnan(value) for value in values.values())


def test_logistic_probabilities_have_the_second_class_last():
    got = probabilities(LOSSES["logistic"], np.array([[0.0], [math.log(3)]], np.float32))
    assert_allclose(got, [[0.5, 0.5], [0.25, 0.75]], rtol=1e-6)
    assert got.dtype == np.float32


@given(finite_scores, st.sampled_from(["softmax", "multilabel-softmax"]))
def test_softmax_probabilities_sum_to_one_and_keep_the_order(scores, name):
    got = probabilities(LOSSES[name], scores)
    assert_allclose(got.sum(axis=1), 1, rtol=1e-5)
    best = np.take_along_axis(got, scores.argmax(axis=1)[:, None], axis=1)
    assert (best[:, 0] == got.max(axis=1)).all()


@given(finite_scores)
def test_multilabel_probabilities_are_sigmoids_of_each_score(scores):
    expected = 1 / (1 + np.exp(-scores.astype(np.float64)))
    got = probabilities(LOSSES["multilabel"], scores)
    assert got.dtype == np.float32
    assert_allclose(got, expected, rtol=2e-5, atol=1e-37)


def test_far_scores_neither_overflow_nor_give_nan():
    scores = np.array([[-3e38, 3e38]], np.float32)
    for name in ("logistic", "softmax", "multilabel", "multilabel-softmax"):
        assert np.isfinite(probabilities(LOSSES[name], scores / 2)).all()


@pytest.mark.parametrize("name", ["hinge", "squared"])
def test_losses_without_probabilities_point_to_decision_values(name):
    with pytest.raises(UsageError, match="decision values"):
        probabilities(LOSSES[name], np.zeros((1, 1), np.float32))
