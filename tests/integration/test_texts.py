"""Networks over the words of texts in whole runs, from files and from Python."""

import json

import numpy as np
import pandas as pd
import pytest

import hogbatch
from hogbatch.errors import UsageError
from hogbatch.model.file import load_model
from tests.integration.test_bad_input import assert_refused

LAYERS = {"convolution": "embed:16,conv1d:16x3,relu,max", "lstm": "embed:16,lstm:16,last"}
FLAGS = ("--text", "text", "--sequence", "words", "--label", "order")
RANDOM = np.random.default_rng(0)


def _texts(rows):
    """Texts in which "red blue" or "blue red" occurs: their words alone do not tell which."""
    fillers, found = ["sea", "sky", "sun", "rain", "wind"], []
    for order in RANDOM.integers(0, 2, rows):
        pair = "red blue" if order else "blue red"
        words = RANDOM.choice(fillers, RANDOM.integers(1, 9))
        at = RANDOM.integers(0, len(words) + 1)
        text = " ".join([*words[:at], pair, *words[at:]])
        found.append((f"{text}.", RANDOM.integers(9), ["no", "yes"][order]))
    return pd.DataFrame(found, columns=["text", "noise", "order"])


ROWS = _texts(1500)
LATER = _texts(300)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    ROWS.to_csv(folder / "rows.csv", index=False)
    LATER.to_csv(folder / "later.csv", index=False)
    return folder


@pytest.mark.parametrize(("kind", "workers"), [("convolution", "cpu:2"), ("lstm", "gpu:host")])
def test_a_model_of_texts_is_trained_saved_and_applied(main, files, tmp_path, kind, workers):
    run, predictions = tmp_path / "run", tmp_path / "predictions.csv"
    flags = (*FLAGS, "--layers", LAYERS[kind], "--workers", workers, "--epochs", 15)
    fixed = ("--members", 1, "--optimizer", "adam", "--lr", 0.005, "--run-dir", run)
    done = main("train", files / "rows.csv", *flags, *fixed)
    assert done.returncode == 0, done.stderr
    assert "1 sequence (text); not used: noise (--sequence)" in done.stdout
    assert json.loads((run / "summary.json").read_text())["test"]["values"]["accuracy"] > 0.95
    model = load_model(run / "model.safetensors")
    assert (model.predict(LATER) == LATER.order).mean() > 0.95
    main("predict", run / "model.safetensors", files / "later.csv", "--output", predictions)
    np.testing.assert_array_equal(pd.read_csv(predictions).iloc[:, 0], model.predict(LATER))


def test_an_estimator_takes_a_column_of_texts():
    settings = {"text": ("text",), "sequence": "characters:40", "epochs": 1, "random_state": 0}
    model = hogbatch.HogbatchClassifier(layers=LAYERS["convolution"], members=1, **settings)
    fitted = model.fit(ROWS[["text"]], ROWS.order)
    assert fitted.model_.network.backbone.inputs == (1, 40, 1)
    assert set(fitted.predict(LATER[["text"]])) <= {"no", "yes"}


def test_rows_of_ids_need_their_number(main, tmp_path):
    """The class is whether id 7 occurs."""
    ids = RANDOM.integers(0, 12, (1500, 10))
    labels = (ids == 7).any(axis=1).astype(int)
    layers = "embed:12x8,conv1d:8x1,relu,max"
    settings = {"optimizer": "adam", "lr": 0.01, "epochs": 15, "members": 1, "verbose": False}
    run = hogbatch.train(ids, labels, layers=layers, **settings)
    assert run.summary["test"]["values"]["accuracy"] > 0.95
    with pytest.raises(UsageError, match=r"whole numbers from 0 to 11; got 12 in row 1"):
        run.model.predict(np.array([10 * [3], 10 * [12]]))
    np.savez(tmp_path / "ids.npz", X=ids + 1, y=labels)
    flags = ("--run-dir", tmp_path / "run", "-q", "--layers")
    done = main("train", tmp_path / "ids.npz", *flags, layers)
    assert_refused(done, "rows: embed:12x8 expects whole numbers from 0 to 11; got 12")
    assert_refused(main("train", tmp_path / "ids.npz", *flags, "embed:8,max"), "embed:IDSxWIDTH")


@pytest.mark.parametrize(
    ("flags", "sentence"),
    {
        (*FLAGS, "--layers", "conv1d:4x3"): "--layers that begin with embed:WIDTH",
        FLAGS: "--layers that begin with embed:WIDTH",
        ("--sequence", "words", "--layers", "embed:8,max"): "--sequence needs one column",
        ("--text", "text", "--layers", "embed:8,max"): "--text has no effect on --layers",
        ("--drop", "noise", "--layers", "embed:8x8,max"): "--drop has no effect on --layers",
        ("--sequence", "lines"): "words or characters, with :LENGTH or without; got 'lines'",
    }.items(),
)
def test_incomplete_settings_are_refused(main, files, tmp_path, flags, sentence):
    done = main("train", files / "rows.csv", *flags, "--run-dir", tmp_path / "run", "-q")
    assert_refused(done, sentence)
