"""`hogbatch train` as a user calls it: real processes on small data."""

import json
import math
import signal

import numpy as np
import pytest

from hogbatch.model.file import load_model
from tests.support.fault_injection import cli

SUMMARY = {
    *("status", "reason", "train_seconds", "epochs", "rows", "train_loss", "test", "saved"),
    *("history", "workers", "faults"),
}
HISTORY = {
    *("seconds", "epochs", "rows", "train_loss", "test_loss", "test_value", "test_values"),
    "utilization",
}
WORKER = {
    *("name", "device", "threads", "rows", "updates", "update_share", "busy", "batch_size"),
    *("utilization", "batch_trace", "update_trace", "staleness"),
    *("merge_seconds", "transferred", "transfer_seconds"),
}
FAULTS = {
    *("leases_reissued", "rows_skipped", "messages_refused", "workers_lost", "merges_refused"),
    *("rows_quarantined", "roll_backs", "checkpoints_failed", "connections_refused"),
}
ROWS, TEST_ROWS = 32_561, 16_281  # of a9a


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
    assert summary.keys() >= SUMMARY and summary["faults"].keys() == FAULTS
    assert all(entry.keys() >= HISTORY for entry in summary["history"])
    assert summary["status"] == "finished"
    assert summary["rows"] == 4 * ROWS and summary["epochs"] == 4
    assert summary["test"]["metric"] == "accuracy" and 0.84 < summary["test"]["value"] < 0.87
    assert summary["test"]["loss"] == min(entry["test_loss"] for entry in summary["history"])
    assert summary["train_seconds"] > 0
    (worker,) = summary["workers"]
    assert worker.keys() >= WORKER
    assert worker["rows"] == summary["rows"] and worker["update_share"] == 1
    assert (worker["name"], worker["device"], worker["threads"]) == ("cpu-0", "cpu", 2)
    assert 0 < worker["busy"] <= 1
    assert worker["utilization"] > 0
    assert any(entry["utilization"]["cpu-0"] > 0 for entry in summary["history"])
    assert load_model(job.run_dir / "model.safetensors").network.features == 123


def test_config_toml_repeats_the_run(job, tmp_path):
    settings = ("--hidden", "12,7", "--optimizer", "adagrad", "--epochs", 2, "--seed", 5)
    job.train("a9a", *settings, "--deterministic", "-q")
    assert job.finish() == 0
    again = tmp_path / "again"
    done = cli("train", "--config", job.run_dir / "config.toml", "--run-dir", again)
    assert (done.returncode, done.stdout) == (0, "")  # `quiet` is in the file too
    assert model_bytes(again) == model_bytes(job.run_dir)
    first, second = job.summary(), json.loads((again / "summary.json").read_text())
    assert second["test"] == first["test"]


def test_two_deterministic_runs_give_the_same_model_to_the_bit(tmp_path):
    # It overfits, so that the best model is not the last, and what is best depends on when one
    # looks.
    settings = ("--hidden", "64", "--optimizer", "adam", "--lr", 0.01, "--epochs", 8)
    settings = (*settings, "--eval-seconds", 0.02)
    for name in ("one", "two"):
        done = cli("train", "a9a", *settings, "--deterministic", "-q", "--run-dir", tmp_path / name)
        assert done.returncode == 0, done.stderr
    assert model_bytes(tmp_path / "one") == model_bytes(tmp_path / "two")


def model_bytes(run_dir):
    return (run_dir / "model.safetensors").read_bytes()


def test_cpu_and_host_gpu_train_one_model(job):
    job.train(
        *("a9a", "--workers", "cpu:1,gpu:host", "--policy", "adaptive", "--max-seconds", 300),
        *("--start-with", 2),
        *("--cpu-batch", "2:32", "--gpu-batch", "64:512"),
    )
    for name in ("cpu-0", "gpu-0"):
        job.wait_for_event("lease", worker=name)
    job.wait_for_event("epoch")
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130
    summary = job.summary()
    limits = {"cpu": (2, 32), "gpu": (64, 512)}
    assert {worker["device"] for worker in summary["workers"]} == limits.keys()
    for worker in summary["workers"]:
        smallest, largest = limits[worker["device"]]
        assert worker["updates"] > 0 and worker["rows"] > 0
        assert worker["batch_trace"], "a first size at least"
        assert all(smallest <= size <= largest for _, size in worker["batch_trace"])
        assert worker["batch_size"] == worker["batch_trace"][-1][1]
        # Ctrl-C ends a run without an evaluation, and so without a last entry.
        assert 0 < worker["update_trace"][-1][1] <= worker["updates"]
    assert sum(worker["rows"] for worker in summary["workers"]) == summary["rows"]
    assert sum(worker["update_share"] for worker in summary["workers"]) == pytest.approx(1)
    assert summary["test"]["value"] > 0.8


def test_a_gpu_worker_measures_its_limits_where_none_are_given(job):
    job.train("a9a", "--workers", "gpu:host", "--epochs", 1, "--hidden", "8")
    assert job.finish() == 0
    (ready,) = job.events("worker_ready")
    smallest, largest = ready["limits"]
    assert 16 <= smallest <= largest <= ROWS


@pytest.mark.parametrize(
    ("flags", "status"),
    [
        (("--max-seconds", 0.3), "time"),
        (("--target-loss", 0.45, "--eval-seconds", 0.01), "target"),
    ],
)
def test_a_run_can_end_by_time_or_by_target(job, flags, status):
    job.train("a9a", "--workers", "cpu:1", *flags)
    assert job.finish() == 0
    summary = job.summary()
    assert summary["status"] == status
    if status == "target":
        assert summary["test"]["loss"] <= 0.45
    else:
        assert summary["train_seconds"] >= 0.3


def test_ctrl_c_saves_the_model_and_ends_the_workers(job):
    job.train("a9a", "--workers", "cpu:2", "--max-seconds", 300, "-q")
    job.wait_for_event("lease", 3)
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130
    said = job.said(job.coordinator)
    assert "interrupted" in said and "Traceback" not in said
    assert len(said.splitlines()) <= 3
    assert job.leftovers() == []
    assert job.summary()["status"] == "stopped"
    tensors = load_model(job.run_dir / "model.safetensors").tensors
    assert all(math.isfinite(tensor.sum()) for tensor in tensors.values())


def test_ctrl_c_while_no_worker_has_come_ends_the_run(job):
    job.coordinate("a9a", "-q")
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130
    assert "Traceback" not in job.said(job.coordinator)


def test_a_second_coordinator_is_told_who_holds_the_run_directory(job):
    job.coordinate("a9a", "-q")
    second = cli("train", "a9a", "--workers", "cpu:1", "-q", "--run-dir", job.run_dir)
    assert second.returncode == 3
    assert f"held by process {job.coordinator.pid}" in second.stderr
    assert len(second.stderr.splitlines()) == 1
    assert job.coordinator.poll() is None and job.address()["pid"] == job.coordinator.pid


def test_a_run_without_workers_gives_up_in_time(job):
    job.coordinate("a9a", "--wait-for-workers", 0.2)
    assert job.finish() == 6
    assert job.summary()["status"] == "failed"
    assert job.said(job.coordinator).startswith("hogbatch: no worker for")


BROKEN = """
class Broken:
    def __init__(self, settings):
        self.nan = float("nan")

    def first_size(self, worker):
        nan = self.nan
        return {0}

    def next_size(self, worker, others):
        return {1}
"""

POLICY = """
class Odd:
    def __init__(self, settings):
        self.alpha = settings.alpha

    def first_size(self, worker):
        return 3

    def next_size(self, worker, others):
        return worker.batch_size + 2
"""


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (("nan", "8"), "mine:Broken: first_size must return a finite number of rows; got nan"),
        (("8", "'9'"), "mine:Broken: next_size must return a finite number of rows; got '9'"),
    ],
)
def test_a_policy_that_returns_no_number_ends_the_run_in_one_sentence(job, answers, said):
    (job.folder / "mine.py").write_text(BROKEN.format(*answers))
    flags = ("--workers", "cpu:1", "--epochs", 2, "-q", "--policy", "mine:Broken")
    job.train("a9a", *flags, PYTHONPATH=str(job.folder))
    assert job.finish() == 2
    errors = job.said(job.coordinator).splitlines()
    assert len(errors) == 1 and said in errors[0]
    assert job.summary()["status"] == "failed" and job.leftovers() == []


def test_a_policy_of_ones_own_sizes_the_batches(job):
    (job.folder / "mine.py").write_text(POLICY)
    flags = ("--workers", "cpu:1", "--epochs", 4, "--cpu-batch", "1:9", "--policy", "mine:Odd")
    job.train("a9a", *flags, PYTHONPATH=str(job.folder))
    assert job.finish() == 0
    (worker,) = job.summary()["workers"]
    assert [size for _, size in worker["batch_trace"]] == [3, 5, 7, 9]


def test_a_run_that_diverges_ends_with_advice_and_saves_a_finite_model_or_none(tmp_path):
    random = np.random.default_rng(0)
    features = random.normal(size=(600, 4))
    features[::2] = 3e38  # what comes of it is no float32 any more
    table = np.column_stack([features, features[:, 0] > 0])
    np.savetxt(tmp_path / "far.csv", table, delimiter=",")
    run_dir = tmp_path / "run"
    flags = ("--optimizer", "adam", "--hidden", "8", "--epochs", 3, "--workers", "cpu:1")
    flags += ("--scale", "none")
    done = cli("train", tmp_path / "far.csv", *flags, "--keep", "last", "-q", "--run-dir", run_dir)
    assert done.returncode == 2
    assert "diverged" in done.stderr and "lower --lr" in done.stderr
    assert "Traceback" not in done.stderr
    if (run_dir / "model.safetensors").exists():
        tensors = load_model(run_dir / "model.safetensors").tensors.values()
        assert all(np.isfinite(tensor).all() for tensor in tensors)
    assert json.loads((run_dir / "summary.json").read_text())["faults"]["rows_skipped"] > 0
