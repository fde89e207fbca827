"""`hogbatch.train` in this process, with workers in separate processes."""

import json
import math
import tempfile
import threading

import numpy as np
import pytest

import hogbatch
from hogbatch.data.order import epoch_order
from hogbatch.errors import DataError, SaveError, UsageError
from hogbatch.model.network import Network
from hogbatch.model.optimizers import OPTIMIZERS
from tests.support import plain_sgd
from tests.support.fault_injection import wait_for

ROWS, FEATURES, CLASSES = 200, 7, 3


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
    """Trains on `file`, in a run directory of this test."""
    runs = iter(range(10))

    def call(**settings):
        run_dir = tmp_path / f"run-{next(runs)}"
        usual = {"hidden": (16,), "workers": "cpu:1", "quiet": True}
        return hogbatch.train(file, run_dir=run_dir, **usual | settings)

    return call


def test_a_run_has_a_model_that_predicts_and_is_saved(train, data, tmp_path):
    run = train(epochs=60)
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


def test_one_process_can_train_twice_and_tells_each_time(train, file, tmp_path, capsys):
    first, second = train(epochs=2), train(epochs=3)
    assert (first.summary["epochs"], second.summary["epochs"]) == (2, 3)
    assert capsys.readouterr().out == ""
    hogbatch.train(file, run_dir=tmp_path / "loud", workers="cpu:1", epochs=1)
    assert "finished: test loss" in capsys.readouterr().out


def test_another_thread_can_train(train):
    runs = []
    thread = threading.Thread(target=lambda: runs.append(train(epochs=2)))
    thread.start()
    thread.join(60)
    assert runs[0].status == "finished"


def test_two_threads_can_train_at_once(train):
    runs = []
    crew = [threading.Thread(target=lambda: runs.append(train(epochs=20))) for _ in range(2)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join(60)
    assert [run.status for run in runs] == ["finished"] * 2


def test_a_set_without_test_rows_trains_all_the_same(train):
    run = train(epochs=2, test_fraction=0.0)
    assert run.test_loss is None and run.summary["test"] is None
    assert run.summary["rows"] == 2 * ROWS
    assert math.isfinite(run.summary["train_loss"])


def test_mistakes_are_exceptions(train, file, tmp_path):
    with pytest.raises(UsageError, match="unknown key 'epoch'; the nearest is 'epochs'"):
        train(epoch=3)
    with pytest.raises(UsageError, match="hidden: expected whole numbers"):
        train(hidden=1.5)
    with pytest.raises(DataError, match="no such file"):
        hogbatch.train(tmp_path / "gone.csv", workers="cpu:1", run_dir=tmp_path / "gone")
    with pytest.raises(SaveError, match="cannot save the model"):
        train(epochs=1).save(tmp_path / "no" / "folder" / "model.safetensors")


def test_a_model_that_cannot_be_saved_is_not_lost(train, tmp_path, monkeypatch):
    """The run directory is moved while the run goes on."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    run_dir = tmp_path / "run-0"

    def move():
        events = run_dir / "events.jsonl"
        wait_for(lambda: events.exists() and '"lease"' in events.read_text(), "the run trains")
        run_dir.rename(tmp_path / "moved")

    mover = threading.Thread(target=move)
    mover.start()
    with pytest.raises(SaveError, match=r"removed, moved or replaced; the model is in ") as raised:
        train(max_seconds=3)
    mover.join(60)
    model = raised.value.run.model
    (saved,) = place.glob("*/model.safetensors")
    again = hogbatch.load_model(saved)
    assert all(np.array_equal(again.tensors[name], model.tensors[name]) for name in model.tensors)
    raised.value.run.save(tmp_path / "rescued.safetensors")


def test_a_run_directory_is_used_again_if_that_is_asked_for(file, tmp_path):
    settings = {"hidden": (), "workers": "cpu:1", "quiet": True, "run_dir": tmp_path / "run"}
    hogbatch.train(file, epochs=1, **settings)
    with pytest.raises(UsageError, match=r"contains a run .* --overwrite to replace it"):
        hogbatch.train(file, epochs=2, **settings)
    assert hogbatch.train(file, epochs=2, overwrite=True, **settings).summary["epochs"] == 2


@pytest.mark.parametrize(
    ("optimizer", "hidden"),
    [("sgd", ()), ("momentum", (12, 9)), ("adagrad", ()), ("adam", (12, 9))],
)
def test_one_thread_with_fixed_batches_follows_plain_numpy(train, data, optimizer, hidden):
    batch, epochs, rate = 8, 8, 0.01
    run = train(
        hidden=hidden,
        activation="tanh",
        optimizer=optimizer,
        policy="fixed",
        cpu_batch=f"{batch}",
        lr=rate,
        lr_scaling="none",
        l2=0.0,
        epochs=epochs,
        eval_seconds=1e-3,  # pauses must not show
        keep="last",
        test_fraction=0.0,
        seed=3,
        scale="none",
    )
    assert run.summary["workers"][0]["updates"] == 200 == epochs * ROWS / batch
    layers = plain_sgd.layers_of(first_tensors(hidden))
    x, labels = data[0].astype(float), data[1]
    batches = [
        (x[rows], labels[rows])
        for epoch in range(epochs)
        for rows in epoch_order(ROWS, 3, epoch).reshape(-1, batch)
    ]
    plain_sgd.train(layers, "tanh", "softmax", batches, OPTIMIZERS[optimizer], rate)
    trained = plain_sgd.layers_of(run.model.tensors)
    for ours, theirs in zip(trained, layers, strict=True):
        for part in range(2):
            np.testing.assert_allclose(ours[part], theirs[part], rtol=0, atol=1e-5)


def first_tensors(hidden):
    """The parameters that a run with seed 3 starts from."""
    network = Network.build(FEATURES, hidden, CLASSES, "tanh", "softmax")
    params = np.empty(network.parameters, np.float32)
    network.initialise(params, 3)
    return network.from_stored(params)
