"""Interrupted runs that are resumed: with other workers, from an older checkpoint, or refused."""

import json

import numpy as np
import pytest

from hogbatch.events.event import CheckpointWritten, Evaluation, Event, Resumed
from hogbatch.model.file import load_model
from hogbatch.run.checkpoint import folder
from tests.support.fault_injection import ENDLESS, ROWS

EPOCHS = 6
LONG = ("--hidden", "256,256", "--eval-seconds", 1000, "--lease-ms", 20, "--epochs", EPOCHS)
SMALL = ("--hidden", 32)  # of `finished_run`


def checkpoints(job):
    return folder.paths(job.run_dir / "checkpoints")


def test_a_run_whose_coordinator_is_killed_goes_on_with_other_workers(job):
    """From the last checkpoint but one, since the last one is damaged."""
    job.train("a9a", "--workers", "cpu:2", *LONG, "--checkpoint-seconds", 0.05)
    job.wait_for_event(CheckpointWritten, 2)
    job.kill()
    assert job.leftovers() == []
    newest, older, *_ = checkpoints(job)
    tensors = bytearray((newest / "tensors.safetensors").read_bytes())
    tensors[len(tensors) // 2] ^= 1
    (newest / "tensors.safetensors").write_bytes(tensors)
    job.train("--resume", "auto", "--workers", "cpu:1,gpu:host", "--start-with", 2, *LONG)
    assert job.finish() == 0
    said = job.printed(job.coordinator)
    assert f"skipping unusable checkpoint: {newest}/tensors.safetensors: tensor " in said
    assert f"resumed from {older}: epoch " in said
    job.check_rows()
    summary = job.summary()
    assert summary["rows"] == EPOCHS * ROWS == sum(w["rows"] for w in summary["workers"])
    assert {w["device"] for w in summary["workers"]} == {"cpu", "gpu"}
    assert summary["epochs"] == EPOCHS
    assert sum(w["update_share"] for w in summary["workers"]) == pytest.approx(1.0)
    resumed = job.wait_for_event(Resumed)
    assert 0 < resumed.rows < EPOCHS * ROWS and resumed.seconds > 0
    assert summary["train_seconds"] > resumed.seconds
    assert len(checkpoints(job)) <= 3
    assert job.leftovers() == []


def test_a_run_that_was_interrupted_has_its_best_model_still(job):
    job.train("a9a", "--workers", "cpu:1", "--eval-seconds", 0.05, *ENDLESS)
    job.wait_for_event(Evaluation, 4)
    job.interrupt()
    before, model = job.summary(), load_model(job.run_dir / "model.safetensors")
    job.train("--resume", job.run_dir, "--lr", 1e-9, "--max-seconds", before["train_seconds"])
    assert job.finish() == 0
    after = job.summary()
    assert after["history"][: len(before["history"])] == before["history"]
    assert after["status"] == "time"
    if after["saved"] == before["saved"]:
        again = load_model(job.run_dir / "model.safetensors")
        assert all(
            np.array_equal(again.tensors[name], model.tensors[name]) for name in model.tensors
        )
    else:
        assert after["validation"]["loss"] < before["validation"]["loss"]


def test_a_deterministic_run_that_is_prolonged_is_the_same_to_the_bit(main, tmp_path):
    models = []
    for parts in ([4], [2, 4]):
        run_dir = tmp_path / f"{len(parts)}"
        flags = ("--deterministic", "--hidden", 16, "--keep", "last", "--run-dir", run_dir)
        for epochs in parts:
            done = main("train", "a9a", *flags, "--epochs", epochs, "--resume", "auto")
            assert done.returncode == 0, done.stderr
            begins = epochs == parts[0]
            assert ("contains no checkpoint: starting a new run" in done.stdout) == begins
        models.append(load_model(run_dir / "model.safetensors").tensors)
    for name, tensor in models[0].items():
        assert np.array_equal(tensor, models[1][name])


def test_a_new_run_from_a_checkpoint_leaves_the_old_one_alone(finished_job, main, tmp_path):
    job = finished_job
    before = job.events(Event)
    other = tmp_path / "other"
    flags = (*SMALL, "--epochs", 2, "--run-dir", other)
    done = main("train", "--resume", job.run_dir / "checkpoints" / "000001", *flags)
    assert done.returncode == 0, done.stderr
    assert job.events(Event) == before
    assert len(folder.paths(other / "checkpoints")) == 1


def test_a_model_without_checkpoints_is_not_replaced_by_resume_auto(main, tmp_path):
    flags = ("train", "a9a", "--hidden", 8, "--epochs", 1, "--run-dir", tmp_path / "run")
    assert main(*flags, "--checkpoint-seconds", 0).returncode == 0
    before = (tmp_path / "run" / "model.safetensors").read_bytes()
    refused = main(*flags, "--resume", "auto")
    assert refused.returncode == 2
    assert "contains a run (model.safetensors): give --overwrite" in refused.stderr
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "difference"),
    [
        (("--hidden", 16), "its network is '123-32-1 relu', but this run's is '123-16-1 relu'"),
        (("--scale", "standard"), "its scale is 'auto', but this run's is 'standard'"),
        (("--seed", 1), "its seed is 0, but this run's is 1"),
    ],
)
def test_another_run_is_refused_and_nothing_that_was_saved_is_lost(
    finished_job, main, flags, difference
):
    job = finished_job
    before, events = sorted(job.run_dir.rglob("*")), job.events(Event)
    refused = main("train", "--resume", job.run_dir, "--epochs", 2, *flags)
    assert refused.returncode == 2 and difference in refused.stderr
    assert sorted(job.run_dir.rglob("*")) == before
    assert job.events(Event) == events


def test_a_finished_run_that_is_resumed_again_is_the_same(main, tmp_path):
    flags = ("train", "a9a", "--hidden", 8, "--epochs", 2, "--run-dir", tmp_path)
    assert main(*flags).returncode == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    for _ in range(2):
        assert main(*flags, "--resume", "auto").returncode == 0
        again = json.loads((tmp_path / "summary.json").read_text())
        for key in ("status", "epochs", "rows", "train_loss", "test", "saved", "history"):
            assert again[key] == summary[key]
