"""Launched workers that die are started again, a limited number of times."""

import os
import re
import signal

import pytest

ROWS = 32_561  # of a9a

# `hogbatch train`, but for GPU workers: what is in FAILURE comes FAILURES times before the worker.
# All pauses are short.
FAILING = """
import os, sys
from hogbatch import cli
from hogbatch.run.launch import local, restarts

restarts.MAX_PAUSE_S = 0.1
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
KILLED = "os.kill(os.getpid(), 9)"
AT_WORK = """
from hogbatch.workers import gpu
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


@pytest.mark.parametrize(
    "failure", [AT_START, AT_WORK, KILLED], ids=["at start", "at work", "killed"]
)
def test_a_worker_that_fails_twice_trains_in_a_third_process(job, train, failure):
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
    given_up = job.wait_for_event("worker_given_up")
    job.wait_for_event("lease", len(job.events("lease")) + 3, worker="cpu-0")
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130
    assert len(job.events("worker_restarted")) == 3
    assert job.events("worker_given_up") == [given_up]
    assert given_up["runs_on"] == "gpu:host"
    assert re.match(r"4 deaths in \d+ s without a finished lease; ", given_up["reason"])
    assert given_up["reason"].count("no device") == 4
    assert job.leftovers() == []


def test_a_device_that_fails_for_good_ends_the_run_if_nobody_else_is_there(job, train):
    train(99, AT_START, "--workers", "gpu:host")
    assert job.finish() == 6
    said = job.said(job.coordinator)
    assert said.startswith("hogbatch: all workers have exited; the last one exited with code 12")
    assert said.count("no device") == 4 and "Traceback" not in said
    assert job.summary()["status"] == "failed"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV], ids=["SIGKILL", "SIGSEGV"])
def test_a_killed_worker_is_replaced_at_once_and_no_row_is_lost(job, number):
    # An epoch takes seconds, so that both workers hold rows when one of them is killed.
    flags = ("--hidden", "1024,1024", "--max-seconds", 300, "--eval-seconds", 1000)
    job.train("a9a", "--workers", "cpu:1,cpu:1", "--start-with", 2, *flags, "--lease-ms", 20)
    victim = job.wait_for_event("worker_joined", worker="cpu-0")["pid"]
    job.wait_for_event("lease", worker="cpu-0")
    os.kill(victim, number)
    restart = job.wait_for_event("worker_restarted")
    names = [event["event"] for event in job.events()]
    at_once = names[names.index("worker_left") : names.index("worker_restarted")]
    assert at_once.count("lease") < 10, "it is not restarted after a pause"
    assert (restart["runs_on"], restart["times"]) == ("cpu:1", 1)
    name = job.wait_for_event("worker_joined", pid=restart["pid"])["worker"]
    job.wait_for_event("lease", worker=name)
    job.wait_for_event("epoch")  # the first, in which it was killed
    job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 130
    assert {event["rows"] for event in job.events("epoch")} == {ROWS}
    said = job.printed(job.coordinator)
    why = "SIGKILL (out of memory? see dmesg)" if number == signal.SIGKILL else "SIGSEGV (see "
    assert f"\ncpu-0 was lost: process {victim} was killed by {why}" in said
    assert "; its rows are reassigned\n" in said
    assert "\ncpu:1 was restarted (1 of 3)\n" in said
    assert job.leftovers() == []
