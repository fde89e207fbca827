"""Several GPU workers on NumPy train one model."""

import signal

import pytest

ROWS = 32_561  # of a9a


@pytest.mark.parametrize("workers", ["gpu:host,gpu:host", "cpu:1,gpu:host,gpu:host"])
def test_several_gpu_workers_train_one_model(job, workers):
    names = {"gpu-0", "gpu-1"} | ({"cpu-0"} if "cpu" in workers else set())
    # The default policy would park some of them where it predicts that they make the run slower.
    flags = ("--gpu-batch", "64:512", "--policy", "paper-adaptive", "--max-seconds", 1000, "-q")
    job.train("a9a", "--workers", workers, *flags)
    for name in names:
        job.wait_for_event("lease", 5, worker=name)
    job.wait_for_event("epoch", len(job.events("epoch")) + 2)
    job.wait_for_event("evaluation", len(job.events("evaluation")) + 1)
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130

    leases = {event["epoch"]: [] for event in job.events("epoch")}
    for event in job.events("lease"):
        leases.setdefault(event["epoch"], []).append(event["rows"])
        assert ("staleness" in event) == event["worker"].startswith("gpu")
    for epoch in job.events("epoch"):
        ranges = sorted(leases[epoch["epoch"]])
        assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
        assert ranges[-1][1] == epoch["rows"] == ROWS
    summary = job.summary()
    assert {worker["name"] for worker in summary["workers"]} == names
    for worker in summary["workers"]:
        assert worker["updates"] > 0 and worker["rows"] > 0
        assert (worker["staleness"] is None) == (worker["device"] == "cpu")
    assert summary["faults"]["workers_lost"] == 0
    assert summary["test"]["loss"] < 0.40
