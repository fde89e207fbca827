"""Workers that die, hang, come and go: no row is lost, and nothing is left behind."""

import itertools
import os
import re
import resource
import shutil
import signal
import subprocess
import time
from functools import partial

import pytest

from hogbatch.events.event import (
    EpochEnded,
    Evaluation,
    Event,
    LeaseDone,
    OutOfMemory,
    Quarantined,
    WorkerGivenUp,
    WorkerJoined,
    WorkerLeft,
    WorkerLost,
    WorkerRestarted,
)
from tests.support.fault_injection import ENDLESS, ROWS, WITHIN_S, wait_for

# Without evaluations within an epoch, for which all workers would have to finish their rows.
STEADY = (*ENDLESS, "--eval-seconds", 1000, "--lease-ms", 20, "--keep", "last")
# An epoch takes a second, so that no worker runs out of rows soon after training has begun.
LONG_EPOCHS = ("a9a", "--hidden", "512,512", *STEADY)


def end_after_an_epoch(job):
    """Interrupt the run when one more epoch has ended; check what was done in all epochs."""
    job.end_of_next_epoch()
    job.interrupt()
    assert job.check_rows() > 0
    assert job.leftovers() == []


# A worker dies -----------------------------------------------------------------------------------


def test_rows_of_a_killed_worker_are_done_by_others_once(job):
    """The coordinator is not its parent, and sees its death by a pidfd."""
    job.coordinate(*LONG_EPOCHS, "--start-with", 2)
    victim, survivor = job.attach(), job.attach()
    for name in ("cpu-0", "cpu-1"):
        job.wait_for_event(LeaseDone, worker=name)
    name = job.wait_for_event(WorkerJoined, pid=victim.pid).worker
    job.note_memory()
    victim.kill()
    lost = job.wait_for_event(WorkerLost)
    end_after_an_epoch(job)
    assert (victim.returncode, survivor.returncode) == (-signal.SIGKILL, 0)
    assert (lost.worker, lost.reason) == (name, f"process {victim.pid} exited")
    left = job.wait_for_event(WorkerLeft, worker=name)
    assert left.reissued
    summary = job.summary()
    assert summary["faults"]["workers_lost"] == 1
    assert summary["faults"]["leases_reissued"] == len(left.reissued)
    assert all(worker["rows"] > 0 for worker in summary["workers"])
    assert sum(worker["rows"] for worker in summary["workers"]) == summary["rows"]


def test_a_killed_worker_is_replaced_at_once_and_no_row_is_lost(job):
    """The coordinator is its parent, and learns the signal that has killed it."""
    job.train(*LONG_EPOCHS, "--workers", "cpu:1,cpu:1", "--start-with", 2)
    victim = job.wait_for_event(WorkerJoined, worker="cpu-0").pid
    job.wait_for_event(LeaseDone, worker="cpu-0")
    os.kill(victim, signal.SIGSEGV)
    restart = job.wait_for_event(WorkerRestarted)
    names = [event.name for event in job.events(Event)]
    at_once = names[names.index("worker_left") : names.index("worker_restarted")]
    assert at_once.count("lease") < 10, "it is not restarted after a pause"
    assert (restart.runs_on, restart.times) == ("cpu:1", 1)
    name = job.wait_for_event(WorkerJoined, pid=restart.pid).worker
    job.wait_for_event(LeaseDone, worker=name)
    end_after_an_epoch(job)
    said = job.printed(job.coordinator)
    assert f"\ncpu-0 was lost: process {victim} was killed by SIGSEGV (see " in said
    assert "; its rows are reassigned\n" in said and "\ncpu:1 was restarted (1 of 30)\n" in said


# `hogbatch train` whose GPU workers end at their start; all pauses are short.
FAILING = """
import sys
from hogbatch.cli import main as cli
from hogbatch.run.launch import local, restarts

restarts.MAX_PAUSE_S = 0.1
started = local.command

def command(request, *rest):
    if request.device == "cpu":
        return started(request, *rest)
    return [sys.executable, "-c", "print('no device', flush=True); raise SystemExit(12)"]

local.command = command
sys.exit(cli.main())
"""


def test_the_others_go_on_without_a_device_that_fails_for_good(job):
    (job.folder / "failing.py").write_text(FAILING)
    flags = ("--hidden", 16, "--workers", "cpu:1,gpu:host", *ENDLESS, "--events", "all")
    job.coordinator = job._start("failing", "train", "a9a", *flags, "--run-dir", job.run_dir)
    given_up = job.wait_for_event(WorkerGivenUp)
    job.wait_for_event(LeaseDone, len(job.events(LeaseDone)) + 3, worker="cpu-0")
    job.interrupt()
    assert len(job.events(WorkerRestarted)) == 3
    assert given_up.runs_on == "gpu:host"
    assert re.match(r"4 deaths in \d+ s without a finished lease; ", given_up.reason)
    assert given_up.reason.count("no device") == 4
    assert job.leftovers() == []


KILLER = """
import os, sys
from hogbatch.workers import cpu

compute = cpu.CpuEngine._compute

def killed_by_a_row(self, work, start, stop, *others):
    if work.task == "train" and work.number:
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
        job.wait_for_event(WorkerLost, died + 1)
    job._start("killer", job.run_dir, "--threads", 2, ROW="4711")
    assert job.finish() == 0
    (note,) = (job.run_dir / "bad-leases.jsonl").read_text().splitlines()
    assert "4711" in note
    (quarantined,) = job.events(Quarantined)
    start, stop = quarantined.rows
    assert stop - start == job.summary()["faults"]["rows_quarantined"] == 16
    assert [event.rows for event in job.events(EpochEnded)] == [ROWS, ROWS - 16]


SCARCE = """
import sys
from pathlib import Path
import numpy as np
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.workers.gpu import GpuEngine
from hogbatch.workers.start import run

class Memory:
    left = True

    def __getattr__(self, name):
        allocates = name in ("empty", "zeros", "full")
        return getattr(np, name) if self.left or not allocates else refuse

def refuse(shape, *rest):
    if np.prod(shape):
        raise MemoryError(f"somebody else has it; {shape} was asked for")
    return np.empty(shape, *rest[-1:])

device = HostDevice()
device.xp = Memory()

class Engine(GpuEngine):
    def submit(self, work):
        device.xp.left = False
        super().submit(work)

run(Path(sys.argv[1]), Engine("gpu:host", lambda precision: device), None)
"""


def test_a_gpu_without_memory_for_a_single_row_ends_and_the_others_go_on(job):
    (job.folder / "scarce.py").write_text(SCARCE)
    sizes = ("--policy", "paper-adaptive", "--gpu-batch", "1:64", "--keep", "last")
    job.coordinate("a9a", "--epochs", 2, *sizes)
    scarce = job._start("scarce", job.run_dir)
    lost = job.wait_for_event(WorkerLost, worker="gpu-0")
    assert scarce.wait(WITHIN_S) == 1
    job.attach()
    assert job.finish() == 0 and job.check_rows() == 2
    assert "a batch of one row does not fit into memory" in job.said(scarce)
    steps = [(event.too_large, event.batch_size) for event in job.events(OutOfMemory)]
    assert steps == [(16, 8), (8, 4), (4, 2), (2, 1)]
    assert job.events(WorkerLost) == [lost]
    assert job.leftovers() == []


# A process is stopped ----------------------------------------------------------------------------


def test_a_worker_that_falls_silent_is_ended_and_its_rows_are_done_by_others(job):
    job.coordinate("a9a", *STEADY)
    victim = job.attach()
    job.wait_for_event(LeaseDone, 3)
    victim.send_signal(signal.SIGSTOP)
    lost = job.wait_for_event(WorkerLost)
    assert victim.wait(WITHIN_S) == -signal.SIGKILL
    job.attach()
    end_after_an_epoch(job)
    assert lost.reason.startswith("silent for ")
    assert job.summary()["faults"]["workers_lost"] == 1


def test_a_worker_that_stood_still_for_a_while_goes_on(job):
    job.coordinate(*LONG_EPOCHS, "--start-with", 2)
    worker, _ = job.attach(), job.attach()
    name = job.wait_for_event(WorkerJoined, pid=worker.pid).worker
    other = "cpu-1" if name == "cpu-0" else "cpu-0"
    for each in (name, other):
        job.wait_for_event(LeaseDone, worker=each)
    worker.send_signal(signal.SIGSTOP)
    before = {each: sum(e.worker == each for e in job.events(LeaseDone)) for each in (name, other)}
    job.wait_for_event(LeaseDone, before[other] + 3, worker=other)
    worker.send_signal(signal.SIGCONT)
    job.wait_for_event(LeaseDone, before[name] + 1, worker=name)
    end_after_an_epoch(job)
    assert job.summary()["faults"]["workers_lost"] == 0


def test_a_coordinator_that_was_stopped_for_a_while_loses_nobody_and_no_time(job):
    stopped_s = 3.0
    job.coordinate("a9a", *STEADY)
    job.attach()
    job.wait_for_event(LeaseDone, 3)
    job.coordinator.send_signal(signal.SIGSTOP)
    until = time.monotonic() + stopped_s
    wait_for(lambda: time.monotonic() > until, "the time it is to be stopped")
    job.coordinator.send_signal(signal.SIGCONT)
    end_after_an_epoch(job)
    # Its workers do what they hold, and wait; that is no training.
    no_training = (
        (later.at - lease.at) - (later.seconds - lease.seconds)
        for lease, later in itertools.pairwise(job.events(LeaseDone))
    )
    assert max(no_training) > 0.9 * stopped_s
    assert job.summary()["faults"]["workers_lost"] == 0


# Coming and going --------------------------------------------------------------------------------


def test_a_worker_that_joins_trains_and_leaves_while_the_run_goes_on(job):
    # The default policy would park one of them where it predicts that it makes the run slower.
    policy = ("--policy", "paper-adaptive", "--gpu-batch", "64:64")
    job.train(*LONG_EPOCHS, *policy, "--workers", "cpu:1")
    job.wait_for_event(LeaseDone, 3)
    for number in range(3):  # on a busy machine, it may have done all rows that it was given
        name, late = f"gpu-{number}", job.attach("gpu", "--device", "host")
        job.wait_for_event(LeaseDone, worker=name)
        job.end_of_next_epoch()  # At the end of an epoch, a slow worker may hold no rows.
        late.terminate()
        assert late.wait(WITHIN_S) == 0
        if job.wait_for_event(WorkerLeft, worker=name).reissued:
            break
    else:
        pytest.fail("unfinished rows of a worker that leaves are handed out again")
    end_after_an_epoch(job)
    assert job.summary()["faults"]["workers_lost"] == 0


def test_a_run_whose_every_worker_leaves_says_why_and_keeps_the_model(job):
    job.train("a9a", "--workers", "cpu:1", "--eval-seconds", 0.05, *ENDLESS, "-q")
    job.wait_for_event(Evaluation, 2)  # the first one is of the initial model
    os.kill(job.wait_for_event(WorkerJoined).pid, signal.SIGTERM)
    assert job.finish() == 6
    said = job.said(job.coordinator)
    assert said.startswith("hogbatch: all workers have exited; the last one exited with code 0")
    assert len(said.splitlines()) == 1 and job.summary()["status"] == "failed"
    assert (job.run_dir / "model.safetensors").exists()
    assert list(job.run_dir.glob("checkpoints/*/manifest.json"))
    assert job.leftovers() == []


# Disk and clock ----------------------------------------------------------------------------------


def test_a_full_disk_does_not_stop_training(job):
    # The limit holds for events.jsonl, too: the longer the leases, the fewer the events.
    flags = ("--hidden", 512, "--epochs", 5, "--lease-ms", 1000, "--eval-seconds", 1000)
    flags = (*flags, "--checkpoint-seconds", 0.05)
    # Byte code that Python writes would be incomplete. The limit comes later, because the memory of
    # the run is a file, too.
    job.coordinate("a9a", *flags, PYTHONDONTWRITEBYTECODE="1")
    most = 200_000  # bytes of a file: a checkpoint and a model have more
    limit = partial(resource.prlimit, job.coordinator.pid, resource.RLIMIT_FSIZE)
    limit((most, resource.RLIM_INFINITY))
    job.attach()
    waits = "; free some disk space: saving is tried again"
    wait_for(lambda: waits in job.printed(job.coordinator), "it waits for space")
    limit((resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert job.finish() == 0
    assert job.check_rows() == 5 and (job.run_dir / "model.safetensors").exists()
    printed = job.printed(job.coordinator)
    assert "cannot save a checkpoint: File too large" in printed
    assert "cannot save the model: File too large" in printed
    assert "Traceback" not in job.said(job.coordinator)
    assert list((job.run_dir / "checkpoints").iterdir()) == []
    assert job.leftovers() == []


JUMPING = """
#define _GNU_SOURCE
#include <dlfcn.h>
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
"""


def test_a_wall_clock_that_jumps_by_hours_changes_nothing(job):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, library = job.folder / "jumping.c", job.folder / "jumping.so"
    source.write_text(JUMPING)
    build = [compiler, "-O1", "-shared", "-fPIC", source, "-o", library, "-ldl"]
    subprocess.run(build, check=True, timeout=WITHIN_S)
    started = time.monotonic()
    job.train("a9a", "--workers", "cpu:1", "--max-seconds", 1, "-q", LD_PRELOAD=str(library))
    assert job.finish() == 0
    took = time.monotonic() - started
    said_at = [event.at for event in job.events(Event)]
    assert max(said_at) - min(said_at) > 7000, "the clock has not jumped"
    summary = job.summary()
    assert summary["status"] == "time" and 1 <= summary["train_seconds"] < took
    assert not any(summary["faults"].values())
    seconds = [evaluation["seconds"] for evaluation in summary["history"]]
    assert seconds == sorted(seconds)
