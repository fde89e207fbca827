import os
import signal
import subprocess
import sys

import pytest

from benchmarks.common.job import WITHIN_S, wait_for
from hogbatch.config.values import WorkerRequest
from hogbatch.events.event import WorkerGivenUp, WorkerRestarted
from hogbatch.run.launch import local
from hogbatch.run.launch.local import LocalLauncher, command

CPU = WorkerRequest("cpu", threads=2)
NEVER = "import time; time.sleep(600)"
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ignoring", flush=True)
time.sleep(600)
"""


@pytest.fixture
def launch(tmp_path, monkeypatch):
    """Starts processes that run the given Python texts; returns their launcher."""
    launcher = LocalLauncher()

    def start(*texts):
        for text in texts:
            monkeypatch.setattr(
                local, "command", lambda *_, text=text: [sys.executable, "-c", text]
            )
            launcher.start(CPU, tmp_path)
        return launcher

    yield start
    launcher.stop(0.0)


def die(launcher, number=0, worked=False, now=0.0):
    """Wait for the exit of a worker, and report it as the loop does."""
    return launcher.died(launcher.pids()[number], worked, now)


def ending(launcher, number=0):
    return launcher.cause_of_death(launcher.pids()[number])


@pytest.mark.parametrize(
    ("request_", "cores", "device", "end"),
    [
        (CPU, (), "cpu", ["--threads", "2"]),
        (CPU, (0, 4, 5), "cpu", ["--threads", "2", "--cores", "0,4-5"]),
        (WorkerRequest("gpu", ordinal=3), (), "gpu", ["--device", "3"]),
        (WorkerRequest("gpu", ordinal="host"), (), "gpu", ["--device", "host"]),
    ],
)
def test_a_worker_is_started_by_this_interpreter(request_, cores, device, end):
    start = [sys.executable, "-P", "-m", f"hogbatch.workers.{device}"]
    expected = [*start, "--launched", str(os.getpid()), "runs/one", *end]
    assert command(request_, "runs/one", cores) == expected


def test_each_worker_has_a_log_with_its_output_and_all_have_ended_when_the_last_has(
    launch, tmp_path
):
    launcher = LocalLauncher()
    assert launcher.all_ended() is None
    launcher.stop()
    launcher = launch("print('one')", "import sys; print('two', file=sys.stderr)", NEVER)
    die(launcher, 0)
    die(launcher, 1)
    assert (tmp_path / "worker-0.log").read_text() == "one\n"
    assert (tmp_path / "worker-1.log").read_text() == "two\n"
    assert launcher.all_ended() is None


def test_when_all_have_exited_the_last_lines_of_the_log_are_shown(launch):
    program = "for k in range(100): print('line', k, flush=True)\nimport os\n"
    launcher = launch(f"{program}os.write(1, b'\\xff')\nraise SystemExit(2)")  # not UTF-8
    die(launcher)
    why = launcher.all_ended()
    assert "the last one exited with code 2" in why
    assert "worker-0.log ends with:\nline 81\n" in why
    assert why.endswith("line 99\n\ufffd")


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGKILL, "SIGKILL (out of memory? see dmesg)"),
        (signal.SIGBUS, "SIGBUS (see worker-0.log)"),
        (signal.SIGRTMIN + 1, f"signal {signal.SIGRTMIN + 1} (see worker-0.log)"),
    ],
)
def test_the_cause_of_death_names_the_signal_and_who_has_worked_is_restarted(launch, number, said):
    launcher = launch(NEVER)
    (pid,) = launcher.pids()
    os.kill(pid, number)
    assert launcher.cause_of_death(pid) == f"process {pid} was killed by {said}"
    assert die(launcher, worked=True, now=5.0) is None
    assert [each.times for each in launcher.start_due(5.0)] == [1], "at once, as it has worked"


def test_a_log_that_was_removed_is_not_shown(launch, tmp_path):
    launcher = launch("raise SystemExit(2)")
    (tmp_path / "worker-0.log").unlink()
    assert die(launcher) == WorkerGivenUp("cpu:2", "exited with code 2")
    assert ending(launcher).endswith(" exited with code 2 (see worker-0.log)")
    assert launcher.cause_of_death(1) == "process 1 exited"


@pytest.mark.parametrize(
    ("program", "patience_s", "how"),
    [
        ("import time; time.sleep(0.2)", WITHIN_S, "exited with code 0"),
        (NEVER, 0.0, "killed by SIGTERM"),
    ],
)
def test_stop_lets_a_worker_exit_by_itself_or_terminates_it(launch, program, patience_s, how):
    launcher = launch(program)
    session = os.getsid(launcher.pids()[0])
    assert session != os.getsid(0), "Ctrl-C in the terminal must not reach it"
    launcher.stop(patience_s)
    assert how in ending(launcher)


def test_stop_kills_workers_that_ignore_it(launch, tmp_path):
    launcher = launch(STUBBORN, STUBBORN)
    logs = [tmp_path / f"worker-{number}.log" for number in (0, 1)]
    wait_for(lambda: all(log.read_text() for log in logs), "both ignore it")
    launcher.stop(0.0)
    assert all("killed by SIGKILL" in ending(launcher, number) for number in (0, 1))
    launcher.stop()  # once more does no harm


def test_ctrl_c_while_waiting_kills_the_workers(launch, monkeypatch):
    launcher = launch(STUBBORN, STUBBORN)

    def interrupted(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launcher.stop(600.0)
    assert all("killed by SIGKILL" in ending(launcher, number) for number in (0, 1))


@pytest.mark.parametrize("code", [1, 12])
def test_a_worker_that_failed_is_restarted_after_a_second(launch, code):
    launcher = launch(f"raise SystemExit({code})")
    (pid,) = launcher.pids()
    assert die(launcher, now=5.0) is None
    assert launcher.all_ended() is None
    assert list(launcher.start_due(5.9)) == []
    (restart,) = launcher.start_due(6.0)
    assert restart == WorkerRestarted("cpu:2", launcher.pids()[0], 1, 3)
    assert restart.pid != pid
    assert launcher.died(pid, False, 7.0) is None, "it is another process now"
    assert list(launcher.start_due(99.0)) == []


@pytest.mark.parametrize("code", [0, 2, 4])
def test_a_worker_that_would_fail_in_the_same_way_is_not_restarted(launch, tmp_path, code):
    launcher = launch(f"print('no such flag'); raise SystemExit({code})", NEVER)
    given_up = die(launcher, worked=True)
    assert list(launcher.start_due(99.0)) == []
    if code == 0:
        assert given_up is None
    else:
        log = tmp_path / "worker-0.log"
        said = f"exited with code {code}; {log} ends with:\nno such flag"
        assert given_up == WorkerGivenUp("cpu:2", said)


def test_each_worker_is_restarted_three_times(launch, tmp_path):
    launcher = launch("pass", "print('failed'); raise SystemExit(12)")
    die(launcher)
    for now, times in ((0.0, 1), (1.0, 2), (3.0, 3)):
        assert die(launcher, 1, now=now) is None
        assert launcher.all_ended() is None
        (restart,) = launcher.start_due(now + 2.0 ** (times - 1))
        assert restart.times == times
    given_up = die(launcher, 1, now=7.0)
    assert given_up.reason.startswith("4 deaths in 7 s without a finished lease; ")
    assert given_up.reason.endswith("/worker-1.log ends with:" + "\nfailed" * 4)
    assert list(launcher.start_due(99.0)) == []
    assert "the last one exited with code 12" in launcher.all_ended()
    assert (tmp_path / "worker-1.log").read_text() == "failed\n" * 4


def test_a_failing_restart_is_retried_a_limited_number_of_times(launch, monkeypatch):
    launcher = launch("raise SystemExit(12)")
    die(launcher)
    monkeypatch.setattr(local, "command", lambda *_: ["/no/such/program"])
    assert list(launcher.start_due(1.0)) == []
    assert list(launcher.start_due(3.0)) == []
    (given_up,) = launcher.start_due(7.0)
    assert given_up.runs_on == "cpu:2" and given_up.reason.startswith("4 deaths in 7 s")
    assert "the last one exited with code 12" in launcher.all_ended()
