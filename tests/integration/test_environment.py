"""Runs on a difficult server: clock changes, suspension, little GPU memory, slow workers."""

import itertools
import shutil
import signal
import subprocess
import time

import pytest

from tests.support.fault_injection import WITHIN_S, wait_for

ROWS = 32_561  # of a9a
STEADY = ("--eval-seconds", 1000, "--lease-ms", 20, "-q")  # evaluations must not be waited for


def audit(job, epochs):
    """Every row of every one of `epochs` epochs was acknowledged once.

    An interrupted run may have begun another one.
    """
    leases = {epoch: [] for epoch in range(epochs + (job.coordinator.returncode == 130))}
    for event in job.events("lease"):
        leases[event["epoch"]].append(event["rows"])
    leases.pop(epochs, None)
    for ranges in leases.values():
        ranges.sort()
        assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
        assert ranges[-1][1] == ROWS
    assert [event["rows"] for event in job.events("epoch")] == [ROWS] * epochs


# Clocks ----------------------------------------------------------------------------------------

JUMPING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/time.h>
#include <time.h>

/* The wall clock is an hour late or an hour early, which differs from call to call. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    static unsigned calls;
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        unsigned call = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
        now->tv_sec += (call * 2654435761u) >> 31 ? 3600 : -3600;
    }
    return failed;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec fine;
    int failed = clock_gettime(CLOCK_REALTIME, &fine);
    now->tv_sec = fine.tv_sec;
    now->tv_usec = fine.tv_nsec / 1000;
    return failed;
}
time_t time(time_t *out)
{
    struct timespec fine;
    clock_gettime(CLOCK_REALTIME, &fine);
    if (out) *out = fine.tv_sec;
    return fine.tv_sec;
}
"""


@pytest.fixture
def jumping_clock(tmp_path):
    """A library that makes the wall clock jump in every process that loads it first."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, library = tmp_path / "jumping.c", tmp_path / "jumping.so"
    source.write_text(JUMPING)
    build = [compiler, "-O1", "-shared", "-fPIC", source, "-o", library, "-ldl"]
    subprocess.run(build, check=True, timeout=WITHIN_S)
    return str(library)


def test_a_wall_clock_that_jumps_by_hours_changes_nothing(job, jumping_clock):
    flags = ("--workers", "cpu:1", "--max-seconds", 1, "--lease-ms", 20, "-q")
    job.train("a9a", *flags, LD_PRELOAD=jumping_clock)
    started = time.monotonic()
    assert job.finish() == 0
    took = time.monotonic() - started
    said_at = [event["at"] for event in job.events()]
    assert max(said_at) - min(said_at) > 7000, "the clock has not jumped"
    summary = job.summary()
    assert summary["status"] == "time" and 1 <= summary["train_seconds"] < took
    assert not any(summary["faults"].values())
    seconds = [evaluation["seconds"] for evaluation in summary["history"]]
    assert seconds == sorted(seconds)
    assert job.leftovers() == []


def test_a_coordinator_that_was_stopped_for_a_while_loses_nobody_and_no_time(job):
    stopped_s = 3.0
    job.coordinate("a9a", "--max-seconds", 300, *STEADY)
    job.attach()
    job.wait_for_event("lease", 3)
    job.coordinator.send_signal(signal.SIGSTOP)
    until = time.monotonic() + stopped_s
    wait_for(lambda: time.monotonic() > until, "the time it is to be stopped")
    job.coordinator.send_signal(signal.SIGCONT)
    job.wait_for_event("epoch", len(job.events("epoch")) + 1)
    job.coordinator.terminate()
    assert job.finish() == 130
    audit(job, len(job.events("epoch")))
    pairs = itertools.pairwise(job.events("lease"))
    # Its workers do what they hold, and wait; that is no training.
    no_training = (
        (later["at"] - lease["at"]) - (later["seconds"] - lease["seconds"])
        for lease, later in pairs
    )
    assert max(no_training) > 0.9 * stopped_s
    assert job.summary()["faults"]["workers_lost"] == 0


# Memory ----------------------------------------------------------------------------------------

SCARCE = """
import sys
from pathlib import Path
from hogbatch.kernels.gpu.device import HostDevice, OutOfHostMemory
from hogbatch.workers.gpu import GpuEngine
from hogbatch.workers.start import run

device = HostDevice(1 << 30)

def refuse(size):
    if size:
        raise OutOfHostMemory(f"somebody else has it; {size} bytes were asked for")

class Engine(GpuEngine):
    def submit(self, work):
        device.xp._allocate = refuse
        super().submit(work)

run(Path(sys.argv[1]), Engine("gpu:host", lambda precision: device), None)
"""


def test_a_gpu_without_memory_for_a_single_row_ends_and_the_others_go_on(job):
    (job.folder / "scarce.py").write_text(SCARCE)
    sizes = ("--policy", "paper-adaptive", "--gpu-batch", "1:64")
    job.coordinate("a9a", "--epochs", 8, *sizes, *STEADY)
    scarce = job._start("scarce", job.run_dir)
    job.wait_for_event("worker_ready", worker="gpu-0")
    wait_for(lambda: scarce.poll() is not None, "the worker on the GPU ends")
    job.attach()
    assert job.finish() == 0
    audit(job, 8)
    assert scarce.returncode == 1
    assert "a batch of one row does not fit into memory" in job.said(scarce)
    steps = [(event["from"], event["to"]) for event in job.events("out_of_memory")]
    assert steps[0] == (16, 8) and steps[-1] == (2, 1)
    (lost,) = job.events("worker_lost")
    assert lost["worker"] == "gpu-0"
    assert job.leftovers() == []


# Coming and going ------------------------------------------------------------------------------


def test_a_worker_that_joins_trains_and_leaves_while_the_run_goes_on(job):
    job.coordinate("a9a", "--max-seconds", 300, *STEADY)
    job.attach()
    job.wait_for_event("lease", 3)
    late = job.attach()
    job.wait_for_event("lease", 3, worker="cpu-1")
    late.terminate()
    assert late.wait(WITHIN_S) == 0
    job.wait_for_event("worker_left", worker="cpu-1")
    # Somebody else does what it had.
    job.wait_for_event("epoch", len(job.events("epoch")) + 1)
    job.coordinator.terminate()
    assert job.finish() == 130
    audit(job, len(job.events("epoch")))
    assert job.summary()["faults"]["workers_lost"] == 0


# Slow neighbours -------------------------------------------------------------------------------

SLOW = """
import sys, time
from pathlib import Path
from hogbatch.workers.cpu import CpuEngine
from hogbatch.workers.start import run

class Engine(CpuEngine):
    def _compute(self, work, *arguments):
        began = time.process_time()  # not what other processes take
        totals = super()._compute(work, *arguments)
        if work.lease:  # but not while it warms up
            time.sleep(99 * (time.process_time() - began))
        return totals

run(Path(sys.argv[1]), Engine(1), None)
"""


def test_a_worker_a_hundred_times_slower_gets_small_batches_and_holds_nobody_up(job):
    (job.folder / "slow.py").write_text(SLOW)
    epochs = 60  # some seconds, so that a pause of the machine changes little
    policy = ("--policy", "paper-adaptive", "--cpu-batch", "1:64", "--hidden", "64,64")
    job.coordinate("a9a", "--start-with", 2, "--epochs", epochs, *policy, *STEADY)
    job._start("slow", job.run_dir)
    slow = job.wait_for_event("worker_ready")["worker"]
    job.attach()
    assert job.finish() == 0
    audit(job, epochs)
    by_name = {worker["name"]: worker for worker in job.summary()["workers"]}
    account = by_name.pop(slow)
    assert account["batch_size"] == 1
    assert 0 < account["rows"] < 0.3 * epochs * ROWS  # a loaded machine slows the fast one, too
