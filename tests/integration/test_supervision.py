"""The ends of workers, coordinator and terminal, Ctrl-C, and the processes that end with them."""

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

from hogbatch.coordinator import loop
from hogbatch.coordinator.commands import Finish, Kill, Record, Revoke
from hogbatch.events.event import (
    Evaluation,
    Goodbye,
    LeaseDone,
    PolicyStopped,
    WorkerJoined,
    WorkerRestarted,
)
from hogbatch.model.file import load_model
from tests.support.fault_injection import ENDLESS, WITHIN_S, cli, wait_for
from tests.unit.coordinator.test_loop import ScriptedState, loop_of

LONG = ("a9a", *ENDLESS, "--lease-ms", 20)


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
def test_a_worker_given_up_writes_nothing_once_its_rows_go_to_others(
    tmp_path, monkeypatch, stopped
):
    monkeypatch.setattr(loop, "KILLED_WITHIN_MS", WITHIN_S * 1000)  # for a loaded machine
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

        commands = [Revoke(0), Kill(writer.pid), Record(Goodbye("handed on")), Finish("finished")]
        loop_of(ScriptedState(commands), Watched(writer.pid), record=hand_on).run()
        assert seen == [True], "it was dead before its rows were handed on"
        assert writer.wait() == -signal.SIGKILL
        assert sentinel[0] == 0


# A coordinator that was killed -------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["starting", "stopped"])
def test_workers_die_with_their_coordinator_whatever_they_do(job, moment):
    # The default policy would park one of them where it predicts that it makes the run slower.
    job.train(*LONG, "--workers", "cpu:1,gpu:host", "--policy", "paper-adaptive")
    if moment == "starting":
        wait_for(lambda: len(job.processes()) == 3, "the workers' processes are there")
    else:
        for worker in ("cpu-0", "gpu-0"):
            job.wait_for_event(LeaseDone, worker=worker)
        job.note_memory()
        for event in job.events(WorkerJoined):
            os.kill(event.pid, signal.SIGSTOP)
    job.kill()
    assert job.leftovers() == []


def test_a_second_coordinator_is_told_who_holds_the_run_directory(job, main):
    job.coordinate("a9a", "-q")
    held = job.address()
    assert held["pid"] == job.coordinator.pid
    second = main("coordinator", "a9a", "-q", "--run-dir", job.run_dir)
    assert second.returncode == 3 and len(second.stderr.splitlines()) == 1
    assert f"held by process {held['pid']} since {held['since']}" in second.stderr
    assert job.coordinator.poll() is None and job.address() == held
    job.kill()
    late = cli("worker", "cpu", job.run_dir)
    assert late.returncode == 2 and "its run has ended" in late.stderr
    again = main("train", "a9a", "--hidden", 8, "--epochs", 1, "-q", "--run-dir", job.run_dir)
    assert again.returncode == 0, "what was left behind is in nobody's way"


# Ctrl-C ------------------------------------------------------------------------------------------


def test_ctrl_c_saves_the_model_and_ends_the_workers_with_little_said(job):
    flags = ("--workers", "cpu:1,cpu:1", "--start-with", 2, "--eval-seconds", 1000)
    coordinator = job.train(*LONG, *flags)
    job.wait_for_event(LeaseDone, 3)
    before = job.printed(coordinator).count("\n")
    job.interrupt()
    assert not any(job.summary()["faults"].values()), "all leases in flight came back"
    lines = job.printed(coordinator).splitlines()[before:] + job.said(coordinator).splitlines()
    assert 1 <= len(lines) <= 3
    assert job.said(coordinator).startswith("hogbatch: interrupted; the model is in ")
    assert job.summary()["status"] == "stopped"
    assert load_model(job.run_dir / "model.safetensors").network.features == 123
    assert list(job.run_dir.glob("checkpoints/*/manifest.json"))
    assert job.leftovers() == []


def test_a_worker_that_is_stuck_does_not_hold_up_the_end(job):
    job.train(*LONG, "--workers", "cpu:1,cpu:1", "--eval-seconds", 1000)
    job.wait_for_event(LeaseDone, 3, worker="cpu-0")
    os.kill(job.wait_for_event(WorkerJoined, worker="cpu-0").pid, signal.SIGSTOP)
    job.interrupt()
    assert job.events(WorkerRestarted) == []
    assert (job.run_dir / "model.safetensors").exists()
    assert job.leftovers() == []


def test_the_second_ctrl_c_ends_the_run_at_once(job):
    coordinator = job.train(*LONG, "--workers", "cpu:1,cpu:1")
    job.wait_for_event(LeaseDone, 3, worker="cpu-0")
    job.note_memory()
    os.kill(job.wait_for_event(WorkerJoined, worker="cpu-0").pid, signal.SIGSTOP)
    coordinator.send_signal(signal.SIGINT)
    coordinator.send_signal(signal.SIGTERM)  # two of a kind might arrive as one
    while coordinator.poll() is None:  # more signals change nothing
        coordinator.send_signal(signal.SIGINT)
        time.sleep(0.03)
    assert job.finish() == 130
    assert job.said(coordinator) == "hogbatch: interrupted\n", "it has not waited for the lease"
    assert job.leftovers() == []


# `hogbatch train` with a short limit for the batch policy of the user, and a policy that is late.
IMPATIENT = """
import sys
from hogbatch.cli import main as cli
from hogbatch.run import policy_limit

policy_limit.LIMIT_S = 1.0
sys.exit(cli.main())
"""
NEVER_RETURNS = """
class Own:
    def __init__(self, settings):
        pass

    def first_size(self, worker):
        return 16

    def next_size(self, worker, others):
        while True:
            pass
"""


def test_a_policy_that_never_returns_stops_neither_training_nor_ctrl_c(job):
    (job.folder / "impatient.py").write_text(IMPATIENT)
    (job.folder / "own_policy.py").write_text(NEVER_RETURNS)
    flags = ("--workers", "cpu:1", "--policy", "own_policy:Own", "--run-dir", job.run_dir)
    job.coordinator = job._start("impatient", "train", *LONG, *flags)
    job.wait_for_event(PolicyStopped)
    job.wait_for_event(LeaseDone, len(job.events(LeaseDone)) + 3)
    job.interrupt()
    said = "--policy own_policy:Own: next_size has not returned within 1 s and is not called again"
    assert said in job.printed(job.coordinator)
    assert (job.run_dir / "model.safetensors").exists()
    assert job.leftovers() == []


# Nobody reads ------------------------------------------------------------------------------------


def test_a_run_whose_output_nobody_reads_any_more_goes_on(job):
    command = [sys.executable, "-m", "hogbatch.cli.main", "train", "a9a", "--hidden", "16"]
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


# `hogbatch train` whose controlling terminal is its stdin, as in a shell.
ON_TERMINAL = """
import fcntl, os, signal, sys, termios
_, nohup, *flags = sys.argv
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
if nohup:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, "-m", "hogbatch.cli.main", "train", *flags])
"""


def read(terminal):
    """Discard what was written to a terminal, which could be full otherwise; True."""
    while select.select([terminal], [], [], 0)[0]:
        os.read(terminal, 1 << 16)
    return True


@pytest.mark.parametrize("nohup", [False, True])
def test_a_run_whose_terminal_is_closed_ends_well_or_goes_on_with_nohup(job, nohup):
    flags = (*LONG, "--workers", "cpu:1", "--eval-seconds", 0.1, "--run-dir", job.run_dir)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", ON_TERMINAL, "nohup" if nohup else "", *map(str, flags)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=job.folder,
        start_new_session=True,
    ) as process:
        try:
            os.close(theirs)
            wait_for(lambda: read(ours) and job.events(LeaseDone), "the first lease")
            os.close(ours)
            if nohup:
                evaluations = len(job.events(Evaluation))
                job.wait_for_event(Evaluation, evaluations + 3)
                process.send_signal(signal.SIGINT)
            assert process.wait(WITHIN_S) == 130
        finally:
            process.kill()
    assert job.summary()["status"] == "stopped"
    assert (job.run_dir / "model.safetensors").exists()


# A bug -------------------------------------------------------------------------------------------

# `hogbatch train` with a bug in one method, which shows once the file `go` exists.
BREAKING = """
import os, sys
from hogbatch.cli import main as cli
from hogbatch.coordinator.state import Coordinator

receive = Coordinator.receive

def buggy(self, *arguments):
    if os.path.exists("go"):
        raise ZeroDivisionError("a bug")
    return receive(self, *arguments)

Coordinator.receive = buggy
sys.exit(cli.main())
"""


def test_a_bug_in_the_coordinator_ends_the_run_with_a_report(job):
    (job.folder / "breaking.py").write_text(BREAKING)
    # The report has the last 1000 messages: with long leases, these go back to the first one.
    flags = ("a9a", *ENDLESS, "--lease-ms", 200, "--workers", "cpu:1", "--run-dir", job.run_dir)
    job.coordinator = job._start("breaking", "train", *flags)
    job.wait_for_event(LeaseDone)
    job.note_memory()
    (job.folder / "go").touch()
    assert job.finish() == 1
    said, path = job.said(job.coordinator), job.run_dir / "crash.txt"
    assert said.startswith("Traceback (most recent call last)")
    assert "\nZeroDivisionError: a bug\n" in said
    assert said.endswith(f"\nhogbatch: this is a bug; please report it, with {path}\n")
    report = path.read_text()
    for part in ("ZeroDivisionError: a bug\n", "\nhogbatch 0.", 'data = "a9a"', "Hello(", "Done("):
        assert part in report
    assert job.leftovers() == []
