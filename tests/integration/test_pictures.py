"""Networks with convolutions in whole runs, from files and from Python."""

import json
import sys
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss

import hogbatch
from hogbatch.model.file import load_model
from tests.integration.test_bad_input import assert_refused
from tests.support.doc_programs import program
from tests.support.fault_injection import cli

LAYERS = "conv:16x3x3,relu,pool:2,conv:16x3x3,relu,dense:32"
RESIDUAL = "conv:16x3x3,norm,relu,conv:16x3x3,norm,relu,conv:16x3x3,norm,add:4,relu,pool:2,dense:32"
SETTINGS = {"layers": LAYERS, "epochs": 10, "members": 1, "verbose": False}
X, Y = load_digits(return_X_y=True)
PICTURES = X.astype(np.uint8).reshape(-1, 8, 8)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Digits as pictures, and as rows of a CSV file."""
    folder = tmp_path_factory.mktemp("digits")
    np.savez(folder / "digits.npz", X=PICTURES, y=Y)
    np.savetxt(folder / "digits.csv", np.c_[X, Y], fmt="%d", delimiter=",")
    return folder


@pytest.mark.parametrize(("workers", "layers"), [("cpu:2", RESIDUAL), ("gpu:host", LAYERS)])
def test_a_model_of_pictures_is_trained_saved_and_applied(main, files, tmp_path, workers, layers):
    run, predictions = tmp_path / "run", tmp_path / "predictions.csv"
    flags = ("--layers", layers, "--workers", workers, "--run-dir", run, "--epochs", 10)
    done = main("train", files / "digits.npz", *flags)
    assert done.returncode == 0, done.stderr
    summary = json.loads((run / "summary.json").read_text())
    assert summary["test"]["values"]["accuracy"] > 0.95
    model = load_model(run / "model.safetensors")
    assert (model.predict(PICTURES) == Y).mean() > 0.95
    np.testing.assert_array_equal(model.predict(PICTURES), model.predict(X))
    for name in ("digits.npz", "digits.csv"):
        done = main("evaluate", run / "model.safetensors", files / name)
        accuracy = (model.predict(PICTURES) == Y).mean()
        assert f"accuracy {accuracy:.6g}" in done.stdout
    main("predict", run / "model.safetensors", files / "digits.npz", "--output", predictions)
    written = np.genfromtxt(predictions, delimiter=",", skip_header=1)
    np.testing.assert_allclose(written[:, 1:], model.predict_proba(PICTURES), atol=1e-5)


def test_rows_of_numbers_are_pictures_of_a_stated_shape(files):
    """The same rows give the same model, in whatever form they are."""
    same = SETTINGS | {"deterministic": True}
    runs = [
        hogbatch.train(files / "digits.npz", **same),
        hogbatch.train(files / "digits.csv", input_shape="8x8", **same),
        hogbatch.train(PICTURES, Y, **same),
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.model.scores(X), runs[0].model.scores(X))
    scaler = runs[0].model.scaler  # one channel
    assert scaler is not None and np.unique(scaler.mean).size == np.unique(scaler.scale).size == 1


@pytest.mark.parametrize("layers", ["conv1d:8x4,relu,max,dense:8", "lstm:16,last"])
def test_steps_of_values_are_sequences(layers):
    """Which of two patterns comes first can be seen only with an order of the steps."""
    random = np.random.default_rng(0)
    sequences = random.normal(0, 0.1, (1500, 20, 3))
    first = random.integers(0, 2, 1500)
    for row, early in enumerate(first):
        begin = random.integers(0, 16)
        sequences[row, begin : begin + 4, 0] += [2, -2, 2, -2] if early else [-2, 2, -2, 2]
    run = hogbatch.train(sequences, first, layers=layers, epochs=30, members=1, verbose=False)
    assert run.summary["test"]["values"]["accuracy"] > 0.95
    assert run.model.network.backbone.inputs == (1, 20, 3)


def test_pictures_are_augmented_in_training_but_not_in_evaluation_or_prediction():
    held_out = {"X_validation": PICTURES[900:1200], "y_validation": Y[900:1200]}
    held_out |= {"X_test": PICTURES[1200:], "y_test": Y[1200:]}
    same = SETTINGS | held_out | {"deterministic": True, "epochs": 3}
    run, again, plain = (
        hogbatch.train(PICTURES[:900], Y[:900], augment=augment, **same)
        for augment in ("flip,shift:1", "flip,shift:1", "none")
    )
    scores = run.model.scores(PICTURES)
    np.testing.assert_array_equal(again.model.scores(PICTURES), scores)
    predicted = run.model.predict_proba(PICTURES[1200:])
    assert run.test_loss == pytest.approx(log_loss(Y[1200:], predicted), abs=1e-5)
    of_run, of_plain = ((r.model.predict(PICTURES[:, :, ::-1]) == Y).mean() for r in (run, plain))
    assert of_run > of_plain + 0.1


def test_training_continues_from_a_model(files, tmp_path):
    run = hogbatch.train(files / "digits.npz", **SETTINGS)
    run.save(tmp_path / "model")
    later = hogbatch.train(PICTURES, Y, init=tmp_path / "model", epochs=1, verbose=False)
    assert later.model.network == run.model.network
    assert later.summary["test"]["values"]["accuracy"] > 0.95


@pytest.mark.parametrize(
    ("flags", "sentence"),
    {
        ("--layers", "dense:8"): "layers must be",
        ("--layers", "conv:8"): "conv:FILTERSxHEIGHTxWIDTH",
        ("--layers", "pool:9"): "'pool:9' of 'pool:9' has outputs of shape 0x0x1",
        ("--layers", "pool:2", "--hidden", "8"): "--layers or --hidden; got both",
        ("--layers", "pool:2", "--input-shape", "9x9"): "9x9x1, 81 values (--input-shape); got",
        ("--layers", "pool:2", "--input-shape", "64"): "HEIGHTxWIDTHxCHANNELS; got '64'",
        ("--layers", "pool:2", "--output", "lsh"): "--layers needs --output dense",
        ("--layers", "pool:2", "--precision", "bfloat16"): "--precision float32 or tf32",
        ("--layers", "pool:2", "--augment", "flip,turn"): "none, flip, [flip,]shift:N; got 'flip,",
        ("--layers", "pool:2", "--augment", "shift:8"): "a height and a width above 8; got 8x8x1",
    }.items(),
)
def test_layers_that_do_not_suit_the_data_are_refused(main, files, tmp_path, flags, sentence):
    done = main("train", files / "digits.npz", *flags, "--run-dir", tmp_path / "run", "-q")
    assert_refused(done, sentence)


def test_sparse_rows_have_no_shape(main, tmp_path):
    done = main("train", "a9a", "--layers", "pool:2", "--run-dir", tmp_path / "run", "-q")
    assert_refused(done, "--layers needs the shape of a row")
    flags = ("--input-shape", "1x1x123", "--layers", "mean", "--run-dir", tmp_path / "run", "-q")
    assert_refused(main("train", "a9a", *flags), "--layers needs dense rows; these are sparse")


def test_several_servers_train_one_model_of_pictures(files, tmp_path):
    servers = ("--cluster", "local", "--servers", 2, "--per-server", "cpu:1", "--epochs", 10)
    flags = (*servers, "--layers", LAYERS, "--run-dir", tmp_path / "run", "-q")
    done = cli("train", files / "digits.npz", *flags)
    assert done.returncode == 0, done.stderr
    model = load_model(tmp_path / "run" / "model.safetensors")
    assert model.network.backbone.inputs == (8, 8, 1)
    assert (model.predict(PICTURES) == Y).mean() > 0.9


def test_the_documented_program_classifies_time_series(monkeypatch, capsys):
    """Each class has a direction of its own, and each sequence a length."""
    random, directions = np.random.default_rng(0), np.eye(3, 12)

    def load(split):
        labels = random.integers(0, 3, 90)
        steps = random.integers(7, 30, 90)
        return [
            np.outer(directions[n], np.ones(t)) for n, t in zip(labels, steps, strict=True)
        ], labels

    monkeypatch.setitem(sys.modules, "aeon", ModuleType("aeon"))
    datasets = ModuleType("aeon.datasets")
    datasets.load_japanese_vowels = load
    monkeypatch.setitem(sys.modules, "aeon.datasets", datasets)
    smaller = {"conv1d:128x8,relu,conv1d:256x5,relu,conv1d:128x3,relu,mean": "conv1d:8x3,relu,mean"}
    exec(program("aeon", smaller, "pictures.md"), {})
    assert float(capsys.readouterr().out.splitlines()[-1]) > 0.9


def test_folders_of_pictures_are_trained_on_and_predicted(main, tmp_path):
    """The pictures of the model are 8 x 8 and grey; later ones are larger, and have colours."""
    for row, (values, digit) in enumerate(zip(PICTURES[:300], Y, strict=False)):
        picture = Image.fromarray(15 * values)
        if row >= 200:
            picture = picture.resize((24, 24), Image.Resampling.NEAREST).convert("RGB")
        path = tmp_path / ("train" if row < 200 else "test") / f"digit {digit}" / f"{row:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
    flags = ("--layers", "conv:8x3x3,relu,dense:32", "--epochs", 40, "-q")
    sets, run = (tmp_path / "train", "--test", tmp_path / "test"), tmp_path / "run"
    done = main("train", *sets, *flags, "--members", 1, "--run-dir", run)
    assert done.returncode == 0, done.stderr
    assert load_model(run / "model.safetensors").input_shape == (8, 8, 1)
    accuracy = json.loads((run / "summary.json").read_text())["test"]["values"]["accuracy"]
    assert accuracy > 0.7
    done = main("evaluate", run / "model.safetensors", tmp_path / "test")
    assert f"accuracy {accuracy:.6g}" in done.stdout
    done = main("predict", run / "model.safetensors", tmp_path / "test" / "digit 3")
    predicted = done.stdout.splitlines()
    assert len(predicted) == (Y[200:300] == 3).sum()
    assert predicted.count("digit 3") > 0.5 * len(predicted)
    init = ("--init", run / "model.safetensors", "--epochs", 1, "--run-dir", tmp_path / "later")
    again = main("train", *sets, *init, "-q")
    assert again.returncode == 0, again.stderr
