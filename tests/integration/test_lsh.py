"""Runs with a hashed output layer: real processes on small synthetic data."""

import json

import pytest

from hogbatch.data.synthetic import SyntheticSettings, generate, write_xmc

ROWS, LABELS, EPOCHS = 4000, 1500, 6
TRAINING = ("--hidden", 64, "--loss", "softmax", "--optimizer", "adam", "--lr", 0.005)
BATCH = ("--cpu-batch", 32, "--epochs", EPOCHS)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Flags that name the files."""
    folder = tmp_path_factory.mktemp("data")
    settings = SyntheticSettings(
        features=2000,
        labels=LABELS,
        rows=ROWS,
        test_rows=500,
        labels_per_row=2,
        features_per_row=30,
        topics=15,
        noise=0.2,
    )
    for name, examples in zip(("train.xmc", "test.xmc"), generate(settings), strict=True):
        write_xmc(examples, LABELS, folder / name)
    return folder / "train.xmc", "--test", folder / "test.xmc"


def test_it_learns_about_as_much_as_a_dense_layer_from_the_same_rows(data, main, tmp_path):
    """A deterministic run that is repeated gives the same model to the bit."""
    summaries, models = [], []
    for number, output in enumerate(("lsh", "lsh", "dense")):
        run_dir = tmp_path / f"{number}"
        flags = (*BATCH, "--deterministic", "--output", output, "--run-dir", run_dir)
        done = main("train", *data, *TRAINING, *flags)
        assert done.returncode == 0, done.stderr
        summaries.append(json.loads((run_dir / "summary.json").read_text()))
        models.append((run_dir / "model.safetensors").read_bytes())
    assert models[0] == models[1]
    lsh, _, dense = summaries
    assert lsh["rows"] == dense["rows"] == EPOCHS * ROWS
    losses = [entry["test_loss"] for entry in lsh["history"]]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.7 * losses[0]
    assert dense["test"]["value"] > 0.6
    assert lsh["test"]["value"] > dense["test"]["value"] - 0.08
    (worker,), (other,) = lsh["workers"], dense["workers"]
    assert 0 < worker["active"] < 0.1 * LABELS and other["active"] is None


def test_a_cpu_and_a_gpu_worker_train_one_model(job, data):
    workers = ("--workers", "cpu:1,gpu:host", "--gpu-batch", "64:128", "--start-with", 2)
    workers += ("--policy", "paper-adaptive")  # which parks nobody
    job.train(*data, *TRAINING, *BATCH, *workers, "--output", "lsh", "-q")
    assert job.finish() == 0, job.said(job.coordinator)
    assert job.check_rows(ROWS) == EPOCHS
    summary = job.summary()
    cpu, gpu = sorted(summary["workers"], key=lambda worker: worker["device"])
    assert cpu["rows"] > 0 < gpu["rows"] and cpu["rows"] + gpu["rows"] == EPOCHS * ROWS
    assert cpu["active"] > 0 and gpu["active"] is None
    assert summary["test"]["value"] > 0.3  # usually 0.6
    assert job.leftovers() == []
