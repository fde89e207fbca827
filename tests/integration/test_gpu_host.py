"""GPU workers on NumPy in separate processes, alone and together with a CPU worker."""

import json
import signal

import pytest

import hogbatch
from benchmarks.common.job import wait_for

ROWS = 32_561  # of a9a


@pytest.fixture
def train(tmp_path):
    """Trains a small network on the bundled sample; the run and its events."""

    def call(**settings):
        run_dir = tmp_path / "run"
        usual = {"hidden": (16,), "gpu_batch": "64:512", "epochs": 2, "quiet": True}
        run = hogbatch.train("a9a", run_dir=run_dir, **usual | settings)
        lines = (run_dir / "events.jsonl").read_text().splitlines()
        return run, [json.loads(line) for line in lines]

    return call


def check_epochs(events):
    """Every row of every epoch was done once; returns how many epochs there were."""
    leases = [event for event in events if event["event"] == "lease"]
    epochs = [event for event in events if event["event"] == "epoch"]
    for number, epoch in enumerate(epochs):
        ranges = sorted(lease["rows"] for lease in leases if lease["epoch"] == number)
        assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
        assert ranges[-1][1] == epoch["rows"] == ROWS
    return len(epochs)


@pytest.mark.parametrize(
    "settings",
    [
        {"merge": "delta"},
        {"merge": "overwrite", "merge_every": 3},
        {"merge": "average", "merge_every": 3},
        {"precision": "tf32", "optimizer": "adam"},
        {"optimizer": "sgd", "staleness_damping": "auto"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_a_gpu_worker_alone_trains(train, settings):
    run, events = train(workers="gpu:host", epochs=3, **settings)
    assert run.status == "finished" and check_epochs(events) == 3
    (worker,) = run.summary["workers"]
    assert worker["device"] == "gpu" and worker["rows"] == 3 * ROWS
    assert worker["staleness"] == 0  # nobody else trains
    leases = [event for event in events if event["event"] == "lease"]
    for name in ("merge_seconds", "transferred", "transfer_seconds"):
        assert all(lease[name] > 0 for lease in leases)
        assert worker[name] == pytest.approx(sum(lease[name] for lease in leases), abs=1e-3)
    every = settings.get("merge_every")
    for lease in leases if every else ():
        start, stop = lease["rows"]
        assert lease["updates"] == -(-(stop - start) // (every * lease["batch_size"]))
    assert sum(lease["updates"] for lease in leases) == worker["updates"]
    assert not any(run.summary["faults"].values())
    assert 0.31 < run.test_loss < 0.36  # less would be too good to be true


def has_stale_merge(leases):
    return any(lease.get("staleness", 0) > 0 for lease in leases)


@pytest.mark.parametrize(
    "flags",
    [
        ("--merge", "delta", "--merge-every", 3, "--staleness-damping", "auto"),
        ("--merge", "overwrite", "--merge-every", 3),
        ("--merge", "average", "--precision", "tf32"),
    ],
    ids=lambda flags: "-".join(map(str, flags[1::2])),
)
def test_a_cpu_and_a_gpu_worker_train_one_model(job, flags):
    # The default policy would park one of them where it predicts that it makes the run slower.
    workers = ("--workers", "cpu:1,gpu:host", "--gpu-batch", "64:512", "--policy", "paper-adaptive")
    job.train("a9a", *workers, "--max-seconds", 300, "--hidden", 16, "-q", *flags)
    for name in ("cpu-0", "gpu-0"):
        job.wait_for_event("lease", 5, worker=name)
    # On a busy machine the CPU worker may not run during the first merges.
    wait_for(
        lambda: has_stale_merge(job.events("lease")), "a merge after updates of the CPU worker"
    )
    job.wait_for_event("epoch", len(job.events("epoch")) + 2)
    job.wait_for_event("evaluation", len(job.events("evaluation")) + 1)
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130 and job.leftovers() == []
    assert check_epochs(job.events()) >= 2
    summary = job.summary()
    by_device = {worker["device"]: worker for worker in summary["workers"]}
    assert by_device.keys() == {"cpu", "gpu"}
    assert all(worker["updates"] > 0 for worker in by_device.values())
    assert by_device["gpu"]["staleness"] > 0
    assert not any(summary["faults"].values())
    assert 0.31 < summary["test"]["loss"] < 0.38
