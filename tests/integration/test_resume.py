"""Interrupted runs that are resumed: with other workers, from an older checkpoint, or refused."""

import resource
import signal

import numpy as np
import pytest

from hogbatch.model.file import load_model
from hogbatch.run.checkpoint import folder
from tests.support.fault_injection import WITHIN_S, cli, wait_for

ROWS = 32_561  # of a9a
EPOCHS = 6
LONG = ("--hidden", "512,512", "--eval-seconds", 1000, "--lease-ms", 20, "--epochs", EPOCHS)
OFTEN = ("--checkpoint-seconds", 0.05)


def checkpoints(job):
    return folder.paths(job.run_dir / "checkpoints")


def kill_after_checkpoint(job, count=1):
    """SIGKILL the coordinator once it has written so many; its workers go with it."""
    job.wait_for_event("checkpoint", count)
    job.coordinator.kill()
    job.coordinator.wait()
    wait_for(lambda: not job.processes(), "the workers end")


def audit(job):
    """In each epoch every row was acknowledged once, in the life of the run that counts."""
    acknowledged, epoch_rows = {}, []
    for event in job.events():
        if event["event"] == "resumed":  # what was done after the checkpoint is done again
            todo = {row for start, stop in event["todo"] for row in range(start, stop)}
            acknowledged = {event["epoch"]: set(range(ROWS)) - todo}
            epoch_rows = epoch_rows[: event["epoch"]]
        elif event["event"] == "lease":
            rows = set(range(*event["rows"]))
            done = acknowledged.setdefault(event["epoch"], set())
            assert not done & rows
            done |= rows
        elif event["event"] == "epoch":
            assert acknowledged.pop(event["epoch"]) == set(range(ROWS))
            epoch_rows.append(event["rows"])
    assert epoch_rows == [ROWS] * EPOCHS


def test_a_run_whose_coordinator_is_killed_goes_on_with_other_workers(job):
    job.train("a9a", "--workers", "cpu:2", *LONG, *OFTEN)
    kill_after_checkpoint(job, 2)
    assert job.leftovers() == []
    job.train("--resume", "auto", "--workers", "cpu:1,gpu:host", "--start-with", 2, *LONG)
    assert job.finish() == 0
    audit(job)
    summary = job.summary()
    assert summary["rows"] == EPOCHS * ROWS == sum(w["rows"] for w in summary["workers"])
    assert {w["device"] for w in summary["workers"]} == {"cpu", "gpu"}
    assert summary["epochs"] == EPOCHS
    assert sum(w["update_share"] for w in summary["workers"]) == pytest.approx(1.0)
    resumed = job.wait_for_event("resumed")
    assert 0 < resumed["rows"] < EPOCHS * ROWS and resumed["seconds"] > 0
    assert summary["train_seconds"] > resumed["seconds"]
    assert len(checkpoints(job)) <= 3
    assert job.leftovers() == []


def test_a_damaged_checkpoint_is_passed_over_and_named(job):
    job.train("a9a", "--workers", "cpu:2", *LONG, *OFTEN)
    kill_after_checkpoint(job, 2)
    newest, older, *_ = checkpoints(job)
    tensors = bytearray((newest / "tensors.safetensors").read_bytes())
    tensors[len(tensors) // 2] ^= 1
    (newest / "tensors.safetensors").write_bytes(tensors)
    job.train("--resume", "auto", "--workers", "cpu:2", *LONG)
    assert job.finish() == 0
    said = (job.folder / "1.out").read_text()
    assert f"skipping unusable checkpoint: {newest}/tensors.safetensors: tensor " in said
    assert f"resumed from {older}: epoch " in said
    audit(job)


def test_a_run_that_was_interrupted_has_its_best_model_still(job):
    job.train("a9a", "--workers", "cpu:1", "--max-seconds", 300, "--eval-seconds", 0.05)
    job.wait_for_event("evaluation", 4)
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130
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
        assert after["test"]["loss"] < before["test"]["loss"]


def test_a_finished_run_is_prolonged(job):
    job.train("a9a", "--workers", "cpu:1", "--epochs", 2)
    assert job.finish() == 0
    job.train("a9a", "--workers", "cpu:1", "--resume", "auto", "--epochs", 3)
    assert job.finish() == 0
    assert job.summary()["epochs"] == 3
    assert [event["epoch"] for event in job.events("epoch")] == [0, 1, 2]


def test_a_deterministic_run_that_is_prolonged_is_the_same_to_the_bit(tmp_path):
    models = []
    for parts in ([4], [2, 4]):
        run_dir = tmp_path / f"{len(parts)}"
        flags = ("--deterministic", "--hidden", 16, "--keep", "last", "-q", "--run-dir", run_dir)
        for epochs in parts:
            done = cli("train", "a9a", *flags, "--epochs", epochs, "--resume", "auto")
            assert done.returncode == 0, done.stderr
        models.append(load_model(run_dir / "model.safetensors").tensors)
    for name, tensor in models[0].items():
        assert np.array_equal(tensor, models[1][name])


def test_auto_begins_where_there_is_nothing_to_resume(job):
    job.train("a9a", "--workers", "cpu:1", "--epochs", 1, "--resume", "auto")
    assert job.finish() == 0
    assert "contains no checkpoint: starting a new run" in (job.folder / "0.out").read_text()


def test_a_new_run_from_a_checkpoint_leaves_the_old_one_alone(finished_job, tmp_path):
    job = finished_job
    before = job.events()
    other = tmp_path / "other"
    flags = ("--workers", "cpu:1", "--epochs", 2, "--run-dir", other)
    done = cli("train", "--resume", job.run_dir / "checkpoints" / "000001", *flags)
    assert done.returncode == 0, done.stderr
    assert job.events() == before
    assert len(folder.paths(other / "checkpoints")) == 1


@pytest.mark.parametrize(
    ("flags", "difference"),
    [
        (("--hidden", 16), "its network is '123-32-1 relu', but this run's is '123-16-1 relu'"),
        (("--seed", 1), "its seed is 0, but this run's is 1"),
        (("--optimizer", "sgd"), "its optimizer is 'adagrad', but this run's is 'sgd'"),
        (("--loss", "hinge"), "its loss is 'logistic', but this run's is 'hinge'"),
        (("--scale", "standard"), "its data is '32561 rows of 123 features"),
    ],
)
def test_another_run_is_refused_and_nothing_that_was_saved_is_lost(finished_job, flags, difference):
    job = finished_job
    before = sorted(job.run_dir.rglob("*"))
    events = job.events()
    refused = cli("train", "--resume", job.run_dir, "--epochs", 2, *flags)
    assert refused.returncode == 2
    assert difference in refused.stderr and "Traceback" not in refused.stderr
    assert sorted(job.run_dir.rglob("*")) == before
    assert job.events() == events


def test_a_full_disk_does_not_stop_training(job):
    # The limit holds for events.jsonl, too: the longer the leases, the fewer the events.
    flags = ("--hidden", 512, "--epochs", 10, "--lease-ms", 1000, "--eval-seconds", 1000)
    job.coordinate("a9a", *flags, *OFTEN)  # the memory of the run is a file, too
    most = 200_000  # bytes of a file: a checkpoint has more
    resource.prlimit(job.coordinator.pid, resource.RLIMIT_FSIZE, (most, most))
    job.attach()
    assert job.finish() == 5
    said = job.said(job.coordinator)
    assert "cannot save the model: File too large" in said and "Traceback" not in said
    assert [event["rows"] for event in job.events("epoch")] == [ROWS] * 10
    assert "cannot save a checkpoint: File too large" in (job.folder / "0.out").read_text()
    assert checkpoints(job) == []
    assert job.leftovers() == []


KILLER = """
import os, sys
import numpy as np
from hogbatch.workers import cpu

compute = cpu.CpuEngine._compute

def killed_by_a_row(self, work, start, stop, *others):
    if work.task == "train" and work.lease:
        if int(os.environ["ROW"]) in self._assignment.orders.row_order(work.epoch)[start:stop]:
            os.kill(os.getpid(), 11)
    return compute(self, work, start, stop, *others)

cpu.CpuEngine._compute = killed_by_a_row
cpu.main()
"""


def test_a_batch_that_kills_three_workers_is_left_out_for_good(job):
    (job.folder / "killer.py").write_text(KILLER)
    job.coordinate("a9a", "--epochs", 2, "--cpu-batch", 16)
    for died in range(3):
        killed = job._start("killer", job.run_dir, "--threads", 2, ROW="4711")
        assert killed.wait(WITHIN_S) == -signal.SIGSEGV
        job.wait_for_event("worker_lost", died + 1)
    job._start("killer", job.run_dir, "--threads", 2, ROW="4711")
    assert job.finish() == 0
    (note,) = (job.run_dir / "bad-leases.jsonl").read_text().splitlines()
    assert "4711" in note
    (quarantined,) = job.events("quarantined")
    start, stop = quarantined["rows"]
    assert stop - start == 16
    assert job.summary()["faults"]["rows_quarantined"] == 16
    assert [event["rows"] for event in job.events("epoch")] == [ROWS, ROWS - 16]
    assert job.leftovers() == []
