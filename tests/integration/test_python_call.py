"""`hogbatch.train` in this process, with workers in separate processes."""

import json
import math
import os
import subprocess
import sys
import tempfile
import threading

import numpy as np
import pandas
import polars
import pyarrow
import pytest

import hogbatch
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.config.sources import merge_sources
from hogbatch.data.order import epoch_order
from hogbatch.errors import DataError, SaveError, UsageError
from hogbatch.model.network import Network
from hogbatch.run.this_server import ThisServer
from hogbatch.run.training import execute
from tests.support import plain_sgd
from tests.support.fault_injection import WITHIN_S

ROWS, FEATURES, CLASSES = 200, 7, 3
USUAL = {"hidden": (16,), "quiet": True}


@pytest.fixture(scope="module")
def data():
    """Rows around three centres, as (x[N, F], labels[N])."""
    random = np.random.default_rng(4)
    labels = random.integers(0, CLASSES, ROWS)
    centres = random.normal(size=(CLASSES, FEATURES))
    x = centres[labels] + random.normal(scale=0.7, size=(ROWS, FEATURES))
    return x.astype(np.float32), labels.astype(np.float64)


@pytest.fixture(scope="module")
def file(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    np.savez(path, X=data[0], y=data[1])
    return path


@pytest.fixture
def train(file, tmp_path):
    """Trains on `file`, in this process and in a run directory of this test."""
    runs = iter(range(10))

    def call(**settings):
        run_dir = tmp_path / f"run-{next(runs)}"
        return hogbatch.train(file, run_dir=run_dir, **USUAL | settings)

    return call


def test_a_run_with_a_worker_process_has_a_model_that_predicts_and_is_saved(train, data, tmp_path):
    run = train(epochs=60, workers="cpu:1")
    assert run.status == "finished" and run.exit_code == 0
    assert run.test_loss == run.summary["test"]["loss"] < 0.5
    written = (run.run_dir / "summary.json").read_text()
    assert json.loads(written) == json.loads(json.dumps(run.summary))
    fractions = run.model.predict_proba(data[0])
    assert fractions.shape == (ROWS, CLASSES) and np.allclose(fractions.sum(axis=1), 1, atol=1e-5)
    assert np.mean(run.model.predict(data[0]) == data[1]) > 0.85
    run.save(tmp_path / "copy.safetensors")
    copy = hogbatch.load_model(tmp_path / "copy.safetensors")
    np.testing.assert_array_equal(copy.predict_proba(data[0]), fractions)


def test_a_run_has_its_figures_by_name(train):
    given = []
    follow = {"on_evaluation": lambda evaluation: given.append(evaluation.metrics)}
    run = train(epochs=3, **follow)
    summary, history = run.summary, run.summary["history"]
    validation, test = summary["validation"], summary["test"]
    assert run.metrics == {
        "seconds": summary["train_seconds"],
        "epochs": 3,
        "rows": summary["rows"],
        "train_loss": history[-1]["train_loss"],
        "validation_loss": run.validation_loss,
        "test_loss": run.test_loss,
        **{f"validation_{name}": value for name, value in validation["values"].items()},
        **{f"test_{name}": value for name, value in test["values"].items()},
    }
    assert {"validation_accuracy", "test_accuracy"} < {*run.metrics}
    assert given == run.metrics_history and len(given) >= 1
    for name in ("rows", "validation_loss"):
        assert [each[name] for each in given] == [each[name] for each in history]


def test_data_without_rows_held_out_are_trained_on_all_the_same(train, capsys):
    run = train(epochs=2, test_fraction=0.0, validation_fraction=0.0)
    assert capsys.readouterr().out == "", "it is quiet"
    assert run.validation_loss is run.test_loss is None
    assert run.summary["validation"] is run.summary["test"] is None
    assert run.summary["rows"] == 2 * ROWS
    assert math.isfinite(run.summary["train_loss"])
    assert math.isnan(run.metrics["test_loss"]) and "test_accuracy" not in run.metrics


def test_a_run_is_resumed_or_replaced_if_that_is_asked_for(train, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = hogbatch.train(file, run_dir="first", epochs=2, **USUAL)
    assert run.path == str(tmp_path / "first")
    first = run.checkpoint
    assert first.parent.parent == run.run_dir
    again = hogbatch.train(file, resume=first, epochs=5)
    assert again.metrics["epochs"] == 5 and again.path == run.path
    assert again.checkpoint.name > first.name
    with pytest.raises(UsageError, match=r"contains a run .* --overwrite to replace it"):
        hogbatch.train(file, epochs=2, run_dir="first", **USUAL)
    other = hogbatch.train(file, epochs=3, run_dir="first", overwrite=True, **USUAL)
    assert other.summary["epochs"] == 3
    assert train(epochs=1, checkpoint_seconds=0).checkpoint is None


def test_two_threads_can_train_at_once(train):
    runs, together = [], threading.Barrier(2, timeout=WITHIN_S)

    def begin(event, fields):
        if event == "worker_ready":
            together.wait()  # until the other run trains as well

    settings = {"epochs": 20, "on_worker": begin, "workers": "cpu:1"}
    crew = [threading.Thread(target=lambda: runs.append(train(**settings))) for _ in range(2)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join(WITHIN_S)
    assert [run.status for run in runs] == ["finished"] * 2


def test_mistakes_are_exceptions(train, tmp_path):
    with pytest.raises(UsageError, match="unknown key 'epoch'; the nearest is 'epochs'"):
        train(epoch=3)
    with pytest.raises(UsageError, match="hidden: expected whole numbers"):
        train(hidden=1.5)
    with pytest.raises(DataError, match="no such file"):
        hogbatch.train(tmp_path / "gone.csv", run_dir=tmp_path / "gone")
    with pytest.raises(SaveError, match="cannot save the model"):
        train(epochs=1).save(tmp_path / "no" / "folder" / "model.safetensors")


def test_a_model_that_cannot_be_saved_is_not_lost(train, tmp_path, monkeypatch):
    """The run directory is moved while the run goes on."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    run_dir = tmp_path / "run-0"

    def move(evaluation):
        if run_dir.exists():
            run_dir.rename(tmp_path / "moved")

    with pytest.raises(SaveError, match=r"removed, moved or replaced; the model is in ") as raised:
        train(epochs=20, members=1, on_evaluation=move)
    model = raised.value.run.model
    (saved,) = place.glob("*/model.safetensors")
    again = hogbatch.load_model(saved)
    assert all(np.array_equal(again.tensors[name], model.tensors[name]) for name in model.tensors)
    raised.value.run.save(tmp_path / "rescued.safetensors")


def test_one_thread_with_fixed_batches_follows_plain_numpy(train, data):
    batch, epochs, rate, hidden = 8, 8, 0.01, (12, 9)
    run = train(
        hidden=hidden,
        activation="tanh",
        optimizer="momentum",
        policy="fixed",
        cpu_batch=f"{batch}",
        lr=rate,
        lr_scaling="none",
        l2=0.0,
        epochs=epochs,
        eval_seconds=1e-3,  # pauses must not show
        keep="last",
        test_fraction=0.0,
        validation_fraction=0.0,
        seed=3,
        scale="none",
    )
    assert run.summary["workers"][0]["updates"] == 200 == epochs * ROWS / batch
    network = Network.build(FEATURES, hidden, CLASSES, "tanh", "softmax")
    params = np.empty(network.parameters, np.float32)
    network.initialise(params, 3)
    layers = plain_sgd.layers_of(network.from_stored(params))
    x, labels = data[0].astype(float), data[1]
    frequencies = np.log(np.bincount(labels.astype(int), minlength=CLASSES))
    layers[-1][1][:] = frequencies - frequencies.mean()
    batches = [
        (x[rows], labels[rows])
        for epoch in range(epochs)
        for rows in epoch_order(ROWS, 3, epoch).reshape(-1, batch)
    ]
    plain_sgd.train(layers, "tanh", "softmax", batches, OPTIMIZERS["momentum"], rate)
    trained = plain_sgd.layers_of(run.model.tensors)
    for ours, theirs in zip(trained, layers, strict=True):
        for part in range(2):
            np.testing.assert_allclose(ours[part], theirs[part], rtol=0, atol=1e-5)


def train_arrays(data, run_dir, **settings):
    return hogbatch.train(*data, run_dir=run_dir, **USUAL | settings)


class TestArrays:
    def test_arrays_give_the_model_of_a_file_with_the_same_rows(self, train, data, tmp_path):
        settings = {"deterministic": True, "epochs": 5}
        from_file = train(**settings)
        from_arrays = train_arrays(data, tmp_path / "arrays", **settings)
        assert from_arrays.test_loss == from_file.test_loss
        for name, tensor in from_file.model.tensors.items():
            np.testing.assert_array_equal(from_arrays.model.tensors[name], tensor)
        assert from_arrays.model.about["data"] == "arrays"

    def test_a_run_is_resumed_with_the_same_arrays_only(self, data, tmp_path):
        resume = {"resume": str(tmp_path / "run"), "epochs": 4}
        train_arrays(data, tmp_path / "run", epochs=2)
        assert train_arrays(data, None, **resume).summary["epochs"] == 4
        weights = {"sample_weight": np.arange(1, ROWS + 1)}
        for other, more in (((data[0] + 1, data[1]), {}), (data, weights)):
            with pytest.raises(UsageError, match="cannot be resumed: its data is"):
                train_arrays(other, None, **resume, **more)
        config = merge_sources({"resume": resume["resume"]}, tmp_path / "run" / "config.toml")
        with pytest.raises(UsageError, match="the run was trained on arrays in Python"):
            execute(config, ThisServer(launch=True))

    def test_weights_have_the_effect_of_repeated_rows_if_each_update_uses_all_rows(self, data):
        times = np.arange(ROWS) % 4  # rows of weight 0 are left out
        repeated = tuple(np.repeat(each, times, axis=0) for each in data)

        def trained(data, rows, **weights):
            settings = {"lr": 0.1, "lr_scaling": "none", "scale": "none", "l2": 0.0, "epochs": 30}
            settings |= {"cpu_batch": f"{rows}:{rows}", "deterministic": True}
            # The first gradients of the biases are 0 up to rounding; Adagrad divides by their size.
            settings["optimizer"] = "sgd"
            settings |= {"test_fraction": 0.0, "validation_fraction": 0.0}
            return hogbatch.train(*data, hidden=(), quiet=True, **settings, **weights)

        found = trained(data, np.count_nonzero(times), sample_weight=times)
        expected = trained(repeated, times.sum())
        scores = [run.model.scores(data[0]) for run in (found, expected)]
        np.testing.assert_allclose(*scores, rtol=1e-3, atol=1e-4)
        losses = [run.summary["history"][-1]["train_loss"] for run in (found, expected)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)

    def test_among_equal_rows_with_contrary_labels_the_label_with_more_weight_wins(
        self, data, tmp_path
    ):
        x, y = np.repeat(data[0], 2, axis=0), np.tile(["more", "less"], ROWS)
        settings = {"sample_weight": np.tile([3, 1], ROWS), "l2": 0.0}
        settings |= {"test_fraction": 0.0, "validation_fraction": 0.0}
        run = train_arrays((x, y), tmp_path / "run", epochs=30, **settings)
        assert run.summary["rows"] == 30 * 2 * ROWS
        likely = run.model.predict_proba(x)[:, list(run.model.encoding.classes).index("more")]
        assert 0.6 < likely.mean() < 0.9

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"X_test": np.zeros((2, 3)), "y_test": [0, 1]}, "X_test: expected 7 features, as in"),
            ({"X_test": np.zeros((2, FEATURES))}, "y_test is missing"),
            ({"y_test": [0, 1]}, "y_test needs X_test"),
            ({"y_validation": [0, 1]}, "y_validation needs X_validation"),
            ({"test": "t.csv"}, "test applies to files; these data are arrays; give X_test"),
            ({"sample_weight": [1.0]}, "sample_weight: expected one number for each of 200 rows"),
            ({"drop": ("a",)}, "X has no column 'a': its columns are 0, 1"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, file, data, tmp_path, settings, message):
        with pytest.raises(UsageError, match=message):
            train_arrays(data, tmp_path / "run", **settings)
        with pytest.raises(UsageError, match="need an array X; a file contains its labels"):
            hogbatch.train(file, data[1])


@pytest.fixture(scope="module")
def frame():
    random = np.random.default_rng(2)
    numbers = random.normal(size=ROWS)
    numbers[::7] = np.nan
    days = np.datetime64("2024-01-01") + np.arange(ROWS)
    kinds = random.choice(["x", "y", "z"], ROWS)
    return pandas.DataFrame({"size": numbers, "kind": kinds, "day": days})


@pytest.mark.parametrize(
    "convert",
    [
        lambda frame: frame,
        polars.from_pandas,
        pyarrow.Table.from_pandas,
        lambda frame: {name: frame[name].to_numpy() for name in frame},
    ],
    ids=["pandas", "Polars", "Arrow", "dictionary"],
)
def test_frames_with_text_dates_and_gaps_are_encoded_like_tables(frame, convert, tmp_path):
    labels = np.where((frame["kind"] == "x") | (frame["size"].fillna(0) > 1), "yes", "no")
    given = convert(frame)
    run = train_arrays((given, labels), tmp_path / "run", epochs=40, lr=0.05)
    assert np.mean(run.model.predict(given) == labels) > 0.9
    assert run.model.predict(given).tolist() == run.model.predict(frame).tolist()


# Everything that a user calls from Python, first in this process and then with a worker process.
CALLS = """
import os
import sklearn  # sets variables of its own
before = dict(os.environ)
import hogbatch
import numpy as np
X = np.random.default_rng(0).standard_normal((300, 4))
y = X[:, 0] > 0
run = hogbatch.train(X, y, epochs=1, hidden=(8,), run_dir="small")
run = hogbatch.train(X, y, epochs=1, hidden=(8,), run_dir="process", workers="cpu:1", lease_ms=5)
run.save("model.safetensors")
hogbatch.load_model("model.safetensors").predict(X)
hogbatch.HogbatchClassifier(hidden=(8,), epochs=1).fit(X, y).predict(X)
assert os.environ == before, set(os.environ.items()) ^ set(before.items())
"""


def test_the_environment_of_the_caller_does_not_change(tmp_path):
    """Libraries that the user loads later must not find one thread set for BLAS."""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CALLS],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
