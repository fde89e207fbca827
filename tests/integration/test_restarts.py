"""Launched workers whose device fails: they are started again, but not for ever."""

import signal

import pytest

from tests.saboteur import wait_for

ROWS = 32_561  # of a9a

# `hogbatch train`, but for GPU workers: what is in FAILURE comes FAILURES times before the worker.
FAILING = """
import os, sys
from hogbatch import cli
from hogbatch.launch import local

started = local.command

def command(request, *rest):
    worker = started(request, *rest)
    if request.device == "cpu":
        return worker
    return [sys.executable, "-c", os.environ["WORKER"], os.environ["FAILURES"], *worker]

local.command = command
sys.exit(cli.main())
"""
WORKER = """
import os, sys
failures, *worker = sys.argv[1:]
print("attempt", flush=True)
with open("attempts", "a") as attempts:
    attempts.write("x")
if os.path.getsize("attempts") > int(failures):
    os.execv(worker[0], worker)
"""
AT_START = "print('no device', flush=True); os._exit(12)"
AT_WORK = """
from workers import gpu
gpu.GpuEngine.submit = lambda self, work: os._exit(12)
sys.argv = [worker[0], *worker[4:]]
gpu.main()
"""


@pytest.fixture
def train(job):
    """Starts a run whose GPU workers fail `failures` times as `failure` says."""
    (job.folder / "failing.py").write_text(FAILING)

    def start(failures, failure, *arguments):
        env = {"FAILURES": str(failures), "WORKER": WORKER + failure}
        flags = ("--hidden", 16, *arguments, "--run-dir", job.run_dir)
        job.coordinator = job._start("failing", "train", "a9a", *flags, **env)

    return start


def log(job, number):
    return (job.run_dir / f"worker-{number}.log").read_text()


@pytest.mark.parametrize("failure", [AT_START, AT_WORK], ids=["at start", "at work"])
def test_a_worker_whose_device_fails_twice_trains_in_a_third_process(job, train, failure):
    train(2, failure, "--workers", "gpu:host", "--epochs", 1)
    assert job.finish() == 0
    restarts = job.events("worker_restarted")
    assert [(each["runs_on"], each["times"]) for each in restarts] == [
        ("gpu:host", 1),
        ("gpu:host", 2),
    ]
    assert job.events("worker_joined")[-1]["pid"] == restarts[-1]["pid"]
    assert log(job, 0).count("attempt") == 3
    leases = sorted(event["rows"] for event in job.events("lease"))
    assert [start for start, _ in leases] == [0, *(stop for _, stop in leases[:-1])]
    assert [event["rows"] for event in job.events("epoch")] == [ROWS]
    assert job.summary()["faults"]["workers_lost"] == (2 if failure is AT_WORK else 0)
    assert job.leftovers() == []


def test_the_others_go_on_without_a_device_that_fails_for_good(job, train):
    train(99, AT_START, "--workers", "cpu:1,gpu:host", "--max-seconds", 300)
    job.wait_for_event("worker_restarted", times=3)
    wait_for(lambda: log(job, 1).count("no device") == 4, "the last attempt")
    job.wait_for_event("lease", len(job.events("lease")) + 3, worker="cpu-0")
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130
    assert len(job.events("worker_restarted")) == 3
    assert job.leftovers() == []


def test_a_device_that_fails_for_good_ends_the_run_if_nobody_else_is_there(job, train):
    train(99, AT_START, "--workers", "gpu:host")
    assert job.finish() == 6
    said = job.said(job.coordinator)
    assert said.startswith("hogbatch: every worker has ended; the last one exited with code 12")
    assert said.count("no device") == 4 and "Traceback" not in said
    assert job.summary()["status"] == "failed"
