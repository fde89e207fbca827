import math
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import huber
from sklearn.metrics import (
    mean_absolute_error,
    mean_pinball_loss,
    mean_poisson_deviance,
    mean_squared_error,
)

from hogbatch.config.losses import (
    LOSSES,
    Loss,
    OfNumbers,
    choose_loss,
    encodings_for,
)
from hogbatch.config.metrics import NUMBERS
from hogbatch.config.train import FLAGS
from hogbatch.data.encode import ENCODERS, Encoding
from hogbatch.errors import UsageError
from hogbatch.kernels import contract
from hogbatch.kernels.reference import NUMPY_KERNELS
from hogbatch.model.metrics import measure
from hogbatch.model.prediction import score_numbers
from tests.support.kernel_cases import SET, labels_for, score_width

losses = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def test_everything_that_lists_losses_lists_those_of_the_table():
    assert LOSSES["squared-log"].kind == LOSSES["squared"].kind
    own = [name for name in LOSSES if name != "squared-log"]
    assert {name: LOSSES[name].kind for name in own} == contract.LOSSES
    kinds = sorted(LOSSES[name].kind for name in own if LOSSES[name].kind >= 0)
    assert kinds == list(range(len(kinds)))
    most = max(len(loss.metrics) for loss in LOSSES.values())
    assert most == contract.TOTALS - contract.METRIC_SUMS
    assert FLAGS["loss"].metavar.split("|") == ["auto", *own, "quantile:Q"]
    assert {LOSSES[name].encoding for name in own} == set(ENCODERS)


@losses
def test_bounded_gradients_are_at_most_1(loss):
    random, rows, width = np.random.default_rng(0), np.arange(SET), score_width(loss.kind, 6)
    scores = 1e6 * random.standard_normal((SET, width))
    labels, gradient = labels_for(random, loss.kind, width), np.empty_like(scores)
    sums = np.zeros(contract.TOTALS)
    NUMPY_KERNELS.loss_gradient(loss.kind, labels, rows, rows, width, scores, gradient, sums)
    assert (abs(gradient * SET).max() < 1.001) == loss.bounded_gradient


def test_the_table_can_be_read_without_numpy():
    program = "import sys, hogbatch.config.train, hogbatch.config.losses; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd="/")
    assert "hogbatch.config.losses" in ran.stdout.split()
    assert not {"numpy", "numba", "msgspec"} & set(ran.stdout.split())


def test_losses_are_chosen_for_labels_by_name_alias_or_automatically():
    automatic = {"binary": "logistic", "classes": "softmax", "real": "squared"}
    automatic |= {"counts": "poisson"}
    for hashed, many in ((False, "multilabel"), (True, "multilabel-softmax")):
        chosen = {kind: choose_loss("auto", kind, hashed=hashed).name for kind in ENCODERS}
        assert chosen == automatic | {"multilabel": many}
    assert choose_loss("softmax", "multilabel").name == "multilabel-softmax"
    assert all(choose_loss(name, loss.encoding) is loss for name, loss in LOSSES.items())
    assert all(loss.encoding in encodings_for(name) for name, loss in LOSSES.items())
    with pytest.raises(UsageError, match=r"hinge expects binary labels; got classes .* softmax"):
        choose_loss("hinge", "classes")
    assert [loss.name for loss in LOSSES.values() if not loss.suits_hashing] == ["multilabel"]


def test_sets_of_numbers_follow_a_property():
    lists = {LOSSES[name].kind for name in ("multilabel", "multilabel-softmax")}
    assert lists == set(contract.LABEL_LISTS)
    softmaxes = {LOSSES[name].kind for name in ("softmax", "multilabel-softmax")}
    assert set(contract.NORMALISED) == softmaxes
    assert {LOSSES[name].kind for name in ("logistic", "hinge")} == set(contract.BINARY)


def test_every_quantile_between_0_and_1_is_a_loss_of_its_own():
    assert [LOSSES[f"quantile:{q}"].kind for q in ("0.9", ".05", "0.000001", "0.999999")] == [
        *(-900_000, -50_000, -1, -999_999)
    ]
    assert LOSSES["quantile:0.50"].kind == LOSSES["quantile:0.5"].kind == -500_000
    assert choose_loss("quantile:0.9", "real").name == "quantile:0.9"
    for unknown in ("quantile", "quantile:0", "quantile:0.0", "quantile:1", "quantile:95", None):
        assert unknown not in LOSSES
    with pytest.raises(KeyError, match="quantile:1"):
        LOSSES["quantile:1.0"]


@pytest.mark.parametrize(
    ("names", "sums", "values"),
    [
        (("logistic", "hinge", "softmax"), (3.0, 0.0, 0.0), {"accuracy": 0.75}),
        (
            ("multilabel", "multilabel-softmax"),
            (4.0, 2.0, 1.0),
            {"P@1": 1.0, "P@3": 0.5, "P@5": 0.25},
        ),
        (("squared", "huber", "poisson"), (36.0, 0.0, 0.0), {"rmse": 3.0}),
    ],
)
def test_metrics_are_means_over_rows(names, sums, values):
    for name in names:
        assert LOSSES[name].metric_values(sums, 4) == values


@losses
def test_metrics_of_no_rows_are_nan(loss):
    values = loss.metric_values((0.0, 0.0, 0.0), 0)
    assert tuple(values) == loss.metrics
    assert all(math.isnan(value) for value in values.values())


@losses
def test_only_a_loss_of_numbers_depends_on_their_unit(loss):
    metrics = dict.fromkeys(loss.metrics, 0.5)
    scaled = loss.in_units(2.0, metrics, 3.0)
    if not isinstance(loss, OfNumbers):
        assert scaled == (2.0, metrics)
        return
    squares = loss.name in ("squared", "squared-log", "huber")
    assert scaled == (18.0 if squares else 6.0, {"rmse": 1.5})


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("squared", lambda *pair: mean_squared_error(*pair) / 2),
        ("huber", lambda *pair: 100 * huber(1, np.subtract(*pair) / 10).mean()),
        ("absolute", mean_absolute_error),
        ("quantile:0.9", partial(mean_pinball_loss, alpha=0.9)),
        ("poisson", lambda *pair: mean_poisson_deviance(*pair) / 2),
    ],
)
def test_losses_of_predictions_are_in_the_unit_of_the_labels(loss, expected):
    random = np.random.default_rng(0)
    labels, predicted = random.poisson(20, 50).astype(float), random.uniform(1, 60, 50)
    labels[0] = 0
    shifted = loss != "poisson"
    encoding = Encoding("real" if shifted else "counts", (), 1, 20.0 if shifted else 0.0, 10.0)
    scores = LOSSES[loss].scores_of(encoding.targets_of(predicted))[:, np.newaxis]
    found, scored = score_numbers(LOSSES[loss], encoding, scores, labels)
    assert found == pytest.approx(expected(labels, predicted), rel=1e-12)
    assert measure(scored)["rmse"] == pytest.approx(math.sqrt(np.square(predicted - labels).mean()))


@pytest.mark.parametrize(
    ("loss", "scores", "expected"),
    [
        ("logistic", [[0.0], [math.log(3)], [-1e38]], [[0.5, 0.5], [0.25, 0.75], [1, 0]]),
        ("softmax", [[0, math.log(3)], [-1e38, 1e38]], [[0.25, 0.75], [0, 1]]),
        ("multilabel-softmax", [[0, 0, math.log(2)]], [[0.25, 0.25, 0.5]]),
        (
            "multilabel",
            [[-1e38, -60, 0, math.log(3), 1e38]],
            [[0, math.exp(-60), 0.5, 0.75, 1]],
        ),
    ],
)
def test_probabilities_are_those_of_the_formula_for_any_scores(loss, scores, expected):
    got = LOSSES[loss].probabilities(np.array(scores, np.float32))
    assert got.dtype == np.float32
    assert_allclose(got, expected, rtol=2e-5)


def test_a_loss_without_probabilities_points_to_decision_values():
    for loss in LOSSES.values():
        if loss.has_probabilities:
            loss.expect_probabilities()
    with pytest.raises(UsageError, match=r"hinge does not define probabilities.* decision values"):
        LOSSES["hinge"].probabilities(np.zeros((1, 1), np.float32))


PREDICTED = {  # of the scores below, by kind of labels
    "binary": [1, 0, 0],
    "classes": [0, 1, 0],
    "multilabel": [[1, 0], [0, 1], [0, 0]],
    "real": [[0.5, -2], [-1, 3], [0, 0]],
    "counts": np.exp([[0.5, -2], [-1, 3], [0, 0]]),
    "logs": [[0.5, -2], [-1, 3], [0, 0]],
}


@losses
def test_predictions_are_labels_as_kernels_take_them(loss: Loss):
    scores = np.array([[0.5, -2], [-1, 3], [0, 0]], np.float32)
    if loss.label_lists and loss.normalised:
        with pytest.raises(UsageError, match=f"{loss.name} ranks labels"):
            loss.expect_predictions()
        return
    loss.expect_predictions()
    assert_allclose(loss.predict(scores), PREDICTED[loss.encoding])
    if loss.encoding in NUMBERS:
        assert loss.predict(scores[:, :1]).shape == (3,)
