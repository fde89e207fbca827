"""GPU workers on NumPy in separate processes, alone and together with a CPU worker."""

import pytest

from hogbatch.events.event import Evaluation, LeaseDone, WorkerReady
from tests.support.fault_injection import ENDLESS, ROWS, wait_for

SMALL = ("a9a", "--hidden", 16, "--gpu-batch", "64:512", "-q")


def test_a_gpu_worker_alone_trains(job):
    flags = ("--merge", "average", "--merge-every", 3, "--precision", "tf32", "--optimizer", "adam")
    job.train(*SMALL, "--workers", "gpu:host", "--epochs", 3, *flags)
    assert job.finish() == 0 and job.check_rows() == 3
    summary, leases = job.summary(), job.events(LeaseDone)
    (worker,) = summary["workers"]
    assert worker["device"] == "gpu" and worker["rows"] == 3 * ROWS
    assert worker["staleness"] == 0  # nobody else trains
    for name in ("merge_seconds", "transferred", "transfer_seconds"):
        assert all(getattr(lease, name) > 0 for lease in leases)
        assert worker[name] == pytest.approx(
            sum(getattr(lease, name) for lease in leases), abs=1e-3
        )
    for lease in leases:
        start, stop = lease.rows
        assert lease.updates == -(-(stop - start) // (3 * lease.batch_size))
    assert sum(lease.updates for lease in leases) == worker["updates"]
    assert not any(summary["faults"].values())
    assert 0.31 < summary["test"]["loss"] < 0.36  # less would be too good to be true


def test_a_gpu_worker_measures_its_limits_where_none_are_given(job):
    job.train("a9a", "--workers", "gpu:host", "--epochs", 1, "--hidden", "8")
    assert job.finish() == 0
    (ready,) = job.events(WorkerReady)
    smallest, largest = ready.limits
    assert 16 <= smallest <= largest <= ROWS


def test_a_cpu_and_two_gpu_workers_train_one_model(job):
    # The default policy would park one of them where it predicts that it makes the run slower.
    flags = ("--policy", "paper-adaptive", "--merge-every", 3, "--staleness-damping", "root")
    sizes = ("--cpu-batch", "2:32", "--eval-seconds", 0.5)
    job.train(*SMALL, "--workers", "cpu:1,gpu:host,gpu:host", *flags, *sizes, *ENDLESS)
    names = {"cpu-0", "gpu-0", "gpu-1"}
    for name in names:
        job.wait_for_event(LeaseDone, 5, worker=name)
    # On a busy machine the other workers may not run during the first merges.
    wait_for(
        lambda: any((lease.staleness or 0) > 0 for lease in job.events(LeaseDone)),
        "a merge after updates of another worker",
    )
    job.end_of_next_epoch()
    job.end_of_next_epoch()
    job.wait_for_event(Evaluation, len(job.events(Evaluation)) + 1)
    job.interrupt()
    assert job.check_rows() >= 2 and job.leftovers() == []
    summary = job.summary()
    assert {worker["name"] for worker in summary["workers"]} == names
    for worker in summary["workers"]:
        smallest, largest = {"cpu": (2, 32), "gpu": (64, 512)}[worker["device"]]
        assert worker["updates"] > 0 and worker["rows"] > 0
        assert worker["batch_trace"], "a first size at least"
        assert all(smallest <= size <= largest for _, size in worker["batch_trace"])
        assert (worker["staleness"] is None) == (worker["device"] == "cpu")
        # Ctrl-C ends a run without an evaluation, and so without a last entry.
        assert 0 < worker["update_trace"][-1][1] <= worker["updates"]
    assert sum(worker["rows"] for worker in summary["workers"]) == summary["rows"]
    assert sum(worker["update_share"] for worker in summary["workers"]) == pytest.approx(1)
    assert not any(summary["faults"].values())
    assert 0.31 < summary["test"]["loss"] < 0.40
