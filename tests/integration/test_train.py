"""`hogbatch train` as a user calls it: real processes on small data."""

import json

import numpy as np

from hogbatch.model.file import load_model
from tests.support.fault_injection import ROWS


def test_a_run_leaves_a_complete_directory(job):
    job.train("a9a", "--epochs", 4, "--workers", "cpu:2")
    assert job.finish() == 0 and job.said(job.coordinator) == ""
    files = {path.name for path in job.run_dir.iterdir()}
    assert files == {
        *("config.toml", "coordinator.json", "events.jsonl", "summary.json"),
        *("model.safetensors", "worker-0.log", "checkpoints", "run.json"),
    }
    assert job.leftovers() == []

    summary = job.summary()
    assert summary["status"] == "finished" and not any(summary["faults"].values())
    assert summary["rows"] == 4 * ROWS and summary["epochs"] == 4
    assert summary["test"]["metric"] == "accuracy" and 0.84 < summary["test"]["value"] < 0.87
    validated = [entry["validation_loss"] for entry in summary["history"]]
    assert summary["validation"]["loss"] == min(validated) != summary["test"]["loss"]
    assert summary["train_seconds"] > 0
    (worker,) = summary["workers"]
    assert worker["rows"] == summary["rows"] and worker["update_share"] == 1
    assert (worker["name"], worker["device"], worker["threads"]) == ("cpu-0", "cpu", 2)
    assert 0 < worker["busy"] <= 1
    _, *trained = summary["history"]
    utilization = [
        worker["utilization"],
        *(each["utilization"].get("cpu-0", 0) for each in trained),
    ]
    assert 0 < max(utilization) <= 1.05
    assert load_model(job.run_dir / "model.safetensors").network.features == 123


def test_config_toml_repeats_a_deterministic_run_to_the_bit(main, tmp_path):
    # It overfits, so that the best model is not the last, and what is best depends on when one
    # looks.
    settings = ("--hidden", "12,7", "--optimizer", "adam", "--lr", 0.01, "--epochs", 6, "--seed", 5)
    flags = ("--eval-seconds", 0.02, "--deterministic", "-q")
    first, second = tmp_path / "first", tmp_path / "second"
    assert main("train", "a9a", *settings, *flags, "--run-dir", first).returncode == 0
    done = main("train", "--config", first / "config.toml", "--run-dir", second)
    assert (done.returncode, done.stdout) == (0, "")  # `quiet` is in the file too
    models = [(each / "model.safetensors").read_bytes() for each in (first, second)]
    assert models[0] == models[1]
    tests = [json.loads((each / "summary.json").read_text())["test"] for each in (first, second)]
    assert tests[0] == tests[1]


def test_a_run_that_diverges_ends_with_advice_and_saves_a_finite_model_or_none(main, tmp_path):
    random = np.random.default_rng(0)
    features = random.normal(size=(600, 4))
    features[::2] = 3e38  # what comes of it is no float32 any more
    table = np.column_stack([features, features[:, 0] > 0])
    np.savetxt(tmp_path / "far.csv", table, delimiter=",")
    run_dir = tmp_path / "run"
    flags = ("--optimizer", "adam", "--hidden", "8", "--epochs", 3, "--scale", "none")
    done = main("train", tmp_path / "far.csv", *flags, "--keep", "last", "--run-dir", run_dir)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "diverged" in done.stderr and "lower --lr" in done.stderr
    if (run_dir / "model.safetensors").exists():
        tensors = load_model(run_dir / "model.safetensors").tensors.values()
        assert all(np.isfinite(tensor).all() for tensor in tensors)
    assert json.loads((run_dir / "summary.json").read_text())["faults"]["rows_skipped"] > 0
