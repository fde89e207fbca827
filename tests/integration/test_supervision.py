"""How workers, coordinator and terminal end, Ctrl-C, and which processes end with them."""

import mmap
import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import closing

import pytest

from hogbatch.coordinator.commands import Finish, Kill, Record, Revoke
from hogbatch.coordinator.loop import Loop
from tests.support.fault_injection import wait_for
from tests.unit.coordinator.test_loop import FakeSegmentServer, ScriptedState, adapters

LONG = ("a9a", "--max-seconds", 300, "--lease-ms", 20)


# A worker that was given up ----------------------------------------------------------------------

# Writes into the file it is given as fast as it can, and heeds no fence; its memory takes the
# kernel a while to free.
WRITER = """
import mmap, sys
held = bytearray(b"x") * 2**26
with open(sys.argv[1], "r+b") as file:
    sentinel = mmap.mmap(file.fileno(), 8)
while True:
    for k in range(1, 256):
        sentinel[0] = k
"""


class Watched:
    """Children of which one process is to be watched."""

    def __init__(self, pid):
        self._pid = pid

    def pids(self):
        return [self._pid]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_worker_given_up_writes_nothing_once_its_rows_go_to_others(tmp_path, stopped):
    path = tmp_path / "sentinel"
    path.write_bytes(bytes(8))
    writer = subprocess.Popen([sys.executable, "-SEc", WRITER, path])
    with path.open("r+b") as file, closing(mmap.mmap(file.fileno(), 8)) as sentinel:
        wait_for(lambda: sentinel[0], "the writer writes")
        if stopped:
            writer.send_signal(signal.SIGSTOP)
        seen = []

        def hand_on(*_):
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            seen.append(os.waitid(os.P_PID, writer.pid, how) is not None)
            writer.send_signal(signal.SIGCONT)
            sentinel[0] = 0

        commands = [Revoke(0), Kill(writer.pid), Record("handed on", {}), Finish("finished", "")]
        with closing(FakeSegmentServer()) as segment_server:
            outside = adapters(segment_server, None, Watched(writer.pid), hand_on)
            Loop(ScriptedState(commands), outside).run()
        assert seen == [True], "it was dead before its rows were handed on"
        assert writer.wait() == -signal.SIGKILL
        assert sentinel[0] == 0


# A coordinator that was killed -------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["starting", "compiling", "training", "stopped"])
def test_workers_die_with_their_coordinator_whatever_they_do(job, moment):
    job.train(*LONG, "--workers", "cpu:1,gpu:host", HOGBATCH_CACHE=compiled_never(job, moment))
    if moment == "starting":
        wait_for(lambda: len(job.processes()) == 3, "the workers' processes are there")
    elif moment == "compiling":
        job.wait_for_event("worker_compiles", worker="cpu-0")
        assert "cpu-0 is compiling its kernels, which takes about" in job.printed(job.coordinator)
    else:
        job.wait_for_event("lease", 3, worker="cpu-0")
    if moment == "stopped":
        for event in job.events("worker_joined"):
            os.kill(event["pid"], signal.SIGSTOP)
    job.coordinator.kill()
    killed = time.monotonic()
    job.coordinator.wait()
    wait_for(lambda: not job.processes(), "the workers end")
    assert time.monotonic() - killed < 2
    assert job.leftovers() == []


def compiled_never(job, moment):
    """A cache without any kernels for the moment at which they are to be compiled."""
    return str(job.folder / "cache") if moment == "compiling" else os.environ["HOGBATCH_CACHE"]


# Ctrl-C ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_the_run_soon_with_little_said(job, number):
    coordinator = job.train(*LONG, "--workers", "cpu:1,cpu:1", "--eval-seconds", 1000)
    job.wait_for_event("lease", 3)
    before = job.printed(coordinator).count("\n")
    coordinator.send_signal(number)
    sent = time.monotonic()
    assert job.finish() == 130
    assert time.monotonic() - sent < 5
    lines = job.printed(coordinator).splitlines()[before:] + job.said(coordinator).splitlines()
    assert 1 <= len(lines) <= 3
    assert job.said(coordinator).startswith("hogbatch: interrupted; the model is in ")
    assert job.summary()["status"] == "stopped"
    assert (job.run_dir / "model.safetensors").exists()
    assert list(job.run_dir.glob("checkpoints/*/manifest.json"))
    assert job.leftovers() == []


def test_a_worker_that_is_stuck_does_not_hold_up_the_end(job):
    coordinator = job.train(*LONG, "--workers", "cpu:1,cpu:1", "--eval-seconds", 1000)
    job.wait_for_event("lease", 3, worker="cpu-0")
    os.kill(job.wait_for_event("worker_joined", worker="cpu-0")["pid"], signal.SIGSTOP)
    coordinator.send_signal(signal.SIGINT)
    sent = time.monotonic()
    assert job.finish() == 130
    assert time.monotonic() - sent < 6, "4 s for its lease, then the others and the model"
    assert job.events("worker_restarted") == []
    assert (job.run_dir / "model.safetensors").exists()
    assert job.leftovers() == []


@pytest.mark.parametrize("hammered", [False, True])
def test_the_second_ctrl_c_ends_the_run_at_once(job, hammered):
    coordinator = job.train(*LONG, "--workers", "cpu:1,cpu:1")
    job.wait_for_event("lease", 3, worker="cpu-0")
    job.note_memory()
    os.kill(job.wait_for_event("worker_joined", worker="cpu-0")["pid"], signal.SIGSTOP)
    sent = time.monotonic()
    coordinator.send_signal(signal.SIGINT)
    coordinator.send_signal(signal.SIGTERM)  # two of a kind might arrive as one
    while hammered and coordinator.poll() is None:
        coordinator.send_signal(signal.SIGINT)
        time.sleep(0.03)
    assert job.finish() == 130
    assert time.monotonic() - sent < 3
    assert job.said(coordinator) == "hogbatch: interrupted\n"
    wait_for(lambda: not job.processes(), "the workers end")
    assert job.leftovers() == []


# Nobody reads ------------------------------------------------------------------------------------


def test_a_run_whose_output_nobody_reads_any_more_goes_on(job):
    command = [sys.executable, "-m", "hogbatch.cli", "train", "a9a", "--hidden", "16"]
    flags = ["--workers", "cpu:1", "--epochs", "4", "--eval-seconds", "0.01"]
    with subprocess.Popen(
        [*command, *flags, "--run-dir", job.run_dir],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=job.folder,
    ) as process:
        assert process.stdout.readline() == b"workers: cpu:1\n"
        process.stdout.close()  # head -1 has had enough
        assert process.stderr.read() == b""
        assert process.wait() == 0
    assert job.summary()["status"] == "finished"


@pytest.mark.parametrize("nohup", [False, True])
def test_a_run_whose_terminal_is_closed_ends_well_or_goes_on_with_nohup(job, nohup):
    command = [sys.executable, "-m", "hogbatch.cli", "train", *map(str, LONG)]
    command += ["--workers", "cpu:1", "--eval-seconds", "0.1", "--run-dir", str(job.run_dir)]
    pid, terminal = pty.fork()
    if pid == 0:
        if nohup:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.chdir(job.folder)
        os.execv(command[0], command)
    try:
        job.wait_for_event("lease")
        os.close(terminal)
        if nohup:
            evaluations = len(job.events("evaluation"))
            job.wait_for_event("evaluation", evaluations + 3)
            os.kill(pid, signal.SIGINT)
        end = os.pidfd_open(pid)
        assert select.select([end], [], [], 20)[0]
        os.close(end)
    finally:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert job.summary()["status"] == "stopped"
    assert (job.run_dir / "model.safetensors").exists()


# Nobody is left ----------------------------------------------------------------------------------


def test_a_run_waits_for_workers_for_a_while_when_all_are_gone(job):
    job.coordinate(*LONG, "--wait-for-workers", 4)
    victim = job.attach()
    job.wait_for_event("lease", 3)
    victim.kill()
    left = job.wait_for_event("worker_left")["at"]
    assert job.finish() == 6
    assert time.time() - left > 4
    assert "no worker for 4 s" in job.said(job.coordinator)
    assert job.summary()["status"] == "failed"
    assert list(job.run_dir.glob("checkpoints/*/manifest.json"))
    assert job.leftovers() == []


# A bug -------------------------------------------------------------------------------------------

# `hogbatch train` with a bug in one method, which shows after the first lease.
BREAKING = """
import os, sys
from hogbatch import cli
from hogbatch.coordinator.loop import Loop
from hogbatch.coordinator.state import Coordinator

where, name = os.environ["BUG"].split(".")
broken = {"Loop": Loop, "Coordinator": Coordinator}[where]
sound = getattr(broken, name)

def buggy(self, *arguments):
    state = self if where == "Coordinator" else self._state
    if state.progress.rows:
        raise ZeroDivisionError("a bug")
    return sound(self, *arguments)

setattr(broken, name, buggy)
sys.exit(cli.main())
"""


@pytest.mark.parametrize(
    "bug",
    ["Coordinator.receive", "Coordinator.lose", "Coordinator.interrupt", "Loop._copy"],
)
def test_a_bug_in_the_coordinator_ends_the_run_with_a_report(job, bug):
    (job.folder / "breaking.py").write_text(BREAKING)
    flags = (*LONG, "--workers", "cpu:1", "--checkpoint-seconds", 0.1, "--run-dir", job.run_dir)
    job.coordinator = job._start("breaking", "train", *flags, BUG=bug)
    worker = job.wait_for_event("worker_joined")["pid"]
    job.note_memory()
    if bug == "Coordinator.lose":
        job.wait_for_event("lease")
        os.kill(worker, signal.SIGKILL)
    if bug == "Coordinator.interrupt":
        job.wait_for_event("lease")
        job.coordinator.send_signal(signal.SIGINT)
    assert job.finish() == 1
    said, path = job.said(job.coordinator), job.run_dir / "crash.txt"
    assert said.startswith("Traceback (most recent call last)")
    assert "\nZeroDivisionError: a bug\n" in said
    assert said.endswith(f"\nhogbatch: this is a bug; please report it, with {path}\n")
    report = path.read_text()
    for part in ("ZeroDivisionError: a bug\n", "\nhogbatch 0.", 'data = "a9a"', "Hello(", "Done("):
        assert part in report
    assert job.leftovers() == []
