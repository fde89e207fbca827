"""Workers that are refused, or that join at the wrong time."""

import subprocess
import sys

import pytest

from hogbatch.wire.codec import PROTOCOL
from tests.support.fault_injection import WITHIN_S, cli, wait_for

ROWS = 32_561  # of a9a

IMPOSTOR = """
import sys
from hogbatch.workers import cpu, session
{change}
sys.argv[1:] = [{run_dir!r}, "--threads", "1"]
cpu.main()
"""


def impostor(job, change):
    """A worker that differs from ours by `change`; returns how it ended."""
    code = IMPOSTOR.format(change=change, run_dir=str(job.run_dir))
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WITHIN_S
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("session.version = lambda: '0.0.1'", "this worker 0.0.1: install the same version"),
        (
            "from hogbatch.wire import codec; codec.PREFIX = codec.MAGIC + b'\\x07\\x00'",
            f"the coordinator uses protocol {PROTOCOL}, this worker 7",
        ),
    ],
    ids=["package", "protocol"],
)
def test_a_worker_of_another_version_is_refused_and_the_run_goes_on(job, change, reason):
    job.coordinate("a9a", "--epochs", 1, "-q")
    refused = impostor(job, change)
    assert refused.returncode == 4 and reason in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    job.attach()
    assert job.finish() == 0
    assert [worker["name"] for worker in job.summary()["workers"]] == ["cpu-0"]


def test_a_worker_that_cannot_compute_is_reported_and_the_run_goes_on(job):
    job.coordinate("a9a", "--epochs", 1, "-q")
    failed = impostor(job, "cpu.CpuEngine._warm_up = lambda self: 1 / 0")
    assert failed.returncode == 1 and "ZeroDivisionError" in failed.stderr
    lost = job.wait_for_event("worker_lost")
    assert lost["reason"] == "ZeroDivisionError: division by zero"
    job.attach()
    assert job.finish() == 0
    assert job.summary()["faults"]["workers_lost"] == 1


def test_a_worker_that_comes_after_the_end_is_told_so(job):
    job.train("a9a", "--workers", "cpu:1", "--epochs", 1, "-q")
    assert job.finish() == 0
    late = cli("worker", "cpu", job.run_dir)
    assert late.returncode == 2 and "no coordinator is running in" in late.stderr
    assert len(late.stderr.splitlines()) == 1


def test_a_worker_that_comes_after_a_killed_coordinator_is_told_so(job):
    job.coordinate("a9a", "-q")
    job.coordinator.kill()
    job.coordinator.wait()
    late = cli("worker", "cpu", job.run_dir)
    assert late.returncode == 2 and "has the run finished?" in late.stderr
    assert len(late.stderr.splitlines()) == 1 and "Traceback" not in late.stderr


def rows_left(job):
    """Rows of the epoch that are not done, as far as events tell."""
    leases = job.events("lease")
    ranges = [event["rows"] for event in leases if event["epoch"] == leases[-1]["epoch"]]
    return ROWS - sum(stop - start for start, stop in ranges)


def test_a_worker_can_join_a_run_that_is_under_way(job):
    # The default policy would park one of them where it predicts that it makes the run slower.
    flags = ("--policy", "paper-adaptive", "--gpu-batch", "64:64", "--eval-seconds", 1000)
    flags = (*flags, "--workers", "cpu:1", "--max-seconds", 300, "--hidden", "1024,1024", "-q")
    job.train("a9a", *flags)
    job.wait_for_event("lease", 3)
    joined = job.attach("gpu", "--device", "host")
    job.wait_for_event("lease", worker="gpu-0")
    # At the end of an epoch, a slow worker may hold no rows.
    wait_for(lambda: rows_left(job) > ROWS / 2, "an epoch has begun")
    joined.terminate()
    assert joined.wait(WITHIN_S) == 0
    left = job.wait_for_event("worker_left", worker="gpu-0")
    assert left["reissued"], "unfinished rows of a worker that leaves are handed out again"
    job.wait_for_event("lease", len(job.events("lease")) + 2)
    job.coordinator.terminate()
    assert job.finish() == 130
    assert job.leftovers() == []
