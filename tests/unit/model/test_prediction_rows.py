"""A model in use: scores, labels and probabilities of rows, against the formula."""

import subprocess
import sys
import tracemalloc
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from pandas import DataFrame

from hogbatch.config.losses import LOSSES
from hogbatch.data.batch import csr_inputs, dense_inputs
from hogbatch.data.encode import Encoding
from hogbatch.data.scale import Scaler
from hogbatch.errors import UsageError
from hogbatch.model import trained
from hogbatch.model.file import save_model
from hogbatch.model.network import Network
from hogbatch.model.trained import Model
from tests.support.trained_models import ENCODINGS, SCALER, expected_scores, model_for


@pytest.fixture
def rows():
    """Rows [7, 5] with some zeros."""
    random = np.random.default_rng(2)
    return (random.standard_normal((7, 5)) * (random.random((7, 5)) < 0.6)).astype(np.float32)


@pytest.mark.parametrize(
    ("hidden", "scaler", "output_major", "form"),
    [
        ((), None, False, np.asarray),
        ((3,), SCALER, False, scipy.sparse.csr_array),
        ((20, 4), SCALER, True, np.asarray),
    ],
)
def test_scores_are_the_formula(hidden, scaler, output_major, form, rows):
    model = model_for(hidden=hidden, scaler=scaler, output_major=output_major)
    got = model.scores(form(rows))
    scaled = rows if scaler is None else (rows - scaler.mean) / scaler.scale
    assert got.dtype == np.float32
    assert_allclose(got, expected_scores(model, scaled), rtol=1e-5, atol=1e-5)
    for index, layer in enumerate(model.layers):  # nothing is copied to predict
        assert layer.weights is model.tensors[f"layers.{index}.weight"]


def test_predictions_are_in_the_form_of_the_training_file(rows):
    models = {loss: model_for(loss, hidden=()) for loss in ENCODINGS}
    scores = {loss: model.scores(rows) for loss, model in models.items()}
    classes = np.array(ENCODINGS["softmax"].classes)
    expected = {
        **{loss: np.where(scores[loss][:, 0] > 0, 1.0, -1.0) for loss in ("logistic", "hinge")},
        "softmax": classes[scores["softmax"].argmax(axis=1)],
        "multilabel": (models["multilabel"].predict_proba(rows) > 0.5).astype(np.uint8),
        "squared": scores["squared"][:, 0].astype(np.float64) * 2.5 + 40,
    }
    for loss, labels in expected.items():
        assert_array_equal(models[loss].predict(rows), labels, strict=True)
        assert loss == "squared" or len(np.unique(labels)) > 1
    expected = LOSSES["logistic"].probabilities(scores["logistic"])
    assert_array_equal(models["logistic"].predict_proba(rows), expected)
    with pytest.raises(UsageError, match=r"multilabel-softmax ranks labels .* --top K"):
        models["multilabel-softmax"].predict(rows)
    with pytest.raises(UsageError, match="loss hinge does not define probabilities"):
        models["hinge"].top_proba(rows, 1)


@pytest.mark.parametrize("loss", ENCODINGS)
def test_an_ensemble_predicts_the_mean(loss, rows):
    """Of the probabilities, or of the numbers; of logarithms and with a hinge loss, of scores."""
    one, *others = members = [model_for(loss, seed=seed) for seed in range(3)]
    ensemble = replace(one, others=tuple(each.tensors for each in others))
    names = dict.fromkeys(("hinge", "squared-log"), "scores")
    names |= dict.fromkeys(("squared", "poisson"), "predict")
    name = names.get(loss, "predict_proba")
    mean = np.mean([getattr(each, name)(rows) for each in members], axis=0)
    assert_allclose(getattr(ensemble, name)(rows), mean, rtol=1e-5, atol=1e-6)
    assert_allclose(ensemble.scores(rows), ensemble.scores(rows, np.float64), rtol=1e-4, atol=1e-5)
    if one.network.outputs > 1:
        assert_array_equal(ensemble.top(rows, 2), np.argsort(-ensemble.scores(rows))[:, :2])


def test_the_columns_of_a_data_frame_go_by_their_names(rows):
    model, order = replace(model_for(), feature_names=tuple("abcde")), [4, 2, 0, 1, 3]
    frame = DataFrame(rows[:, order], columns=["abcde"[place] for place in order])
    assert_array_equal(model.scores(frame), model.scores(rows))
    assert_array_equal(model.predict(frame), model.predict(rows))
    assert_array_equal(model.top(frame, 2), model.top(rows, 2))
    assert not np.array_equal(model_for().scores(frame), model.scores(rows))
    with pytest.raises(UsageError, match="got no column 'e'"):
        model.scores(DataFrame(rows, columns=[*"abcdx"]))


def test_every_form_of_input_gives_the_same_scores(rows):
    model = model_for()
    sparse = scipy.sparse.csr_array(rows)

    @dataclass
    class Bare:
        indptr: np.ndarray
        indices: np.ndarray
        data: np.ndarray

    csr = csr_inputs(sparse.indptr.astype(np.int64), sparse.indices, sparse.data)
    forms = (
        *(rows.astype(np.float64), rows.tolist(), np.asfortranarray(rows), dense_inputs(rows)),
        *(sparse, csr, Bare(sparse.indptr, sparse.indices, sparse.data)),
    )
    for form in forms:
        assert_allclose(model.scores(form), model.scores(rows), rtol=1e-5, atol=1e-6)


def test_scipy_matrices_with_repeated_and_unsorted_indices_are_summed():
    model = model_for(scaler=Scaler(np.ones(5), np.ones(5)))
    unsorted = scipy.sparse.csr_array(([1.0, 2.0, 3.0], [4, 0, 4], [0, 3]), shape=(1, 5))
    assert_allclose(model.scores(unsorted), model.scores([[2, 0, 0, 0, 4]]), rtol=1e-6)
    assert unsorted.nnz == 3


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_chunks_change_nothing(rows, form, monkeypatch):
    model, given = model_for(scaler=SCALER), form(rows)
    whole, best = model.scores(given), model.top(given, 2)
    monkeypatch.setattr(trained, "CHUNK", 15)  # 3 rows of 5 features
    assert_allclose(model.scores(given), whole, rtol=1e-5, atol=1e-6)
    assert_array_equal(model.top(given, 2), best)


def test_no_rows_give_no_scores():
    model, none = model_for(), np.empty((0, 5))
    assert model.scores(none).shape == model.predict_proba(none).shape == (0, 3)
    assert model.predict(none).shape == (0,)
    assert [each.shape for each in (model.top(none, 2), *model.top_proba(none, 2))] == [(0, 2)] * 3


def test_rows_keep_their_precision_until_they_are_scaled():
    seconds = 1_700_000_000
    model = model_for(scaler=Scaler(np.full(5, seconds, float), np.ones(5)))
    offsets = np.arange(10).reshape(2, 5)
    expected = expected_scores(model, offsets)
    for rows in (offsets + seconds, (offsets + seconds).tolist(), offsets + float(seconds)):
        assert_allclose(model.scores(rows), expected, rtol=1e-5)


def test_top_columns_come_best_first_and_must_exist(rows):
    model = model_for("multilabel")
    for k in (1, 3, 6):
        assert_array_equal(model.top(rows, k), np.argsort(-model.scores(rows), axis=1)[:, :k])
    for k in (-1, 0, 7):
        with pytest.raises(UsageError, match=f"expected k from 1 to 6; got {k}"):
            model.top(rows, k)


@pytest.mark.parametrize("loss", ["logistic", "softmax", "multilabel", "multilabel-softmax"])
def test_top_probabilities_are_those_of_their_columns(loss, rows):
    model = model_for(loss)
    k = min(2, model.network.outputs)
    columns, probabilities = model.top_proba(rows, k)
    assert_array_equal(columns, model.top(rows, k))
    every = model.predict_proba(rows)[:, -model.network.outputs :]
    assert_allclose(probabilities, np.take_along_axis(every, columns, axis=1), rtol=1e-5)
    assert probabilities.dtype == np.float32


def test_scores_of_many_outputs_are_never_all_there():
    network = Network.build(4, (4,), 5000, "tanh", "multilabel", output_major=True)
    tensors = {each.name: np.zeros(each.shape, np.float32) for each in network.tensors()}
    tensors["layers.1.bias"][:] = np.arange(5000)  # the scores
    model = Model(network, tensors, Encoding("multilabel", (), 5000), None, None, {})
    tracemalloc.start()
    columns = model.top(np.zeros((4000, 4)), 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (columns == [4999, 4998, 4997]).all()
    assert peak < 30e6  # they are 80e6 bytes


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((2, 4)), "expected 5 features; got 4"),
        (np.zeros(5), r"expected a matrix \[rows, features\]; got shape \(5,\)"),
        ([["a"] * 5], "expected a matrix of numbers"),
        (dense_inputs(np.zeros((2, 6), np.float32)), "expected 5 features; got 6"),
        (scipy.sparse.csr_array((2, 6)), "expected 5 features; got 6"),
        (scipy.sparse.csc_array((2, 6)), "expected 5 features; got 6"),
        (
            csr_inputs(np.array([0, 1]), np.array([5], np.int32), np.ones(1, np.float32)),
            "expected features 0 to 4; got 5 to 5",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused(given, message):
    with pytest.raises(UsageError, match=message):
        model_for().scores(given)


PREDICT = """
import sys
import numpy as np
from hogbatch.cli.main import main
from hogbatch.model.file import load_model

load_model("model").predict(np.zeros((2, 5), np.float32))
assert main(["predict", "model", "rows.svm"]) == main(["evaluate", "model", "rows.svm"]) == 0
heavy = {"numba", "llvmlite", "zmq", "cupy", "scipy", "msgspec", "sklearn", "pyarrow"}
sys.exit(str(heavy & {name.split(".")[0] for name in sys.modules} or ""))
"""


def test_prediction_needs_numpy_and_safetensors_alone(tmp_path):
    save_model(model_for(), tmp_path / "model")
    (tmp_path / "rows.svm").write_text("2 1:0.5 5:1\n5 2:1\n")
    command = [sys.executable, "-c", PREDICT]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.strip() == ""
