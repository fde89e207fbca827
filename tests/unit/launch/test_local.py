import os
import signal
import sys
import time

import pytest

from hogbatch.launch import local
from hogbatch.launch.local import LocalLauncher, command
from hogbatch.values import WorkerRequest

CPU = WorkerRequest("cpu", threads=2)
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


def pids(launcher):
    return launcher.pids()


def runs(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(true, patience=30.0):
    deadline = time.monotonic() + patience
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("request_", "end"),
    [
        (CPU, ["-P", "-m", "workers.cpu", "runs/one", "--launched", "--threads", "2"]),
        (
            WorkerRequest("gpu", ordinal=3),
            ["-P", "-m", "workers.gpu", "runs/one", "--launched", "--device", "3"],
        ),
        (
            WorkerRequest("gpu", ordinal="host"),
            ["-P", "-m", "workers.gpu", "runs/one", "--launched", "--device", "host"],
        ),
    ],
    ids=["cpu", "gpu", "host"],
)
def test_a_worker_is_started_by_this_interpreter(request_, end, tmp_path):
    assert command(request_, "runs/one") == [sys.executable, *end]


def test_a_cpu_worker_is_told_its_cores():
    assert command(CPU, "runs/one", (0, 4, 5))[-4:] == ["--threads", "2", "--cores", "0,4-5"]


def test_a_launcher_that_started_nobody_has_lost_nobody():
    launcher = LocalLauncher()
    assert launcher.all_ended() is None
    launcher.stop()


def test_each_worker_has_a_log_with_all_it_says(launch, tmp_path):
    launcher = launch("print('one')", "import sys; print('two', file=sys.stderr)")
    wait_until(launcher.all_ended)
    assert (tmp_path / "worker-0.log").read_text() == "one\n"
    assert (tmp_path / "worker-1.log").read_text() == "two\n"


def test_while_one_runs_not_all_have_ended(launch):
    launcher = launch("pass", "import time; time.sleep(600)")
    assert "exited with code 0" in launcher.cause_of_death(pids(launcher)[0])
    assert launcher.all_ended() is None


def test_when_all_have_ended_the_last_lines_of_the_log_say_why(launch):
    launcher = launch("for k in range(100): print('line', k)\nraise SystemExit(6)")
    wait_until(launcher.all_ended)
    why = launcher.all_ended()
    assert "the last one exited with code 6" in why
    assert "worker-0.log ends with:\nline 80\n" in why
    assert why.endswith("line 99")


def test_a_log_that_is_no_text_is_shown_all_the_same(launch):
    launcher = launch("import os; os.write(1, b'\\xff\\xfe end')")
    wait_until(launcher.all_ended)
    assert launcher.all_ended().endswith(" end")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS])
def test_the_cause_of_death_names_the_signal(launch, number):
    launcher = launch("import time; time.sleep(600)")
    (pid,) = pids(launcher)
    os.kill(pid, number)
    cause = launcher.cause_of_death(pid)
    assert cause == f"process {pid} was killed by {number.name}; see worker-0.log"


def test_the_cause_of_death_of_a_stranger_is_unknown(launch):
    assert launch("pass").cause_of_death(1) == "process 1 ended"


def test_stop_lets_a_worker_leave_by_itself(launch):
    launcher = launch("import time; time.sleep(0.2)")
    launcher.stop(30.0)
    assert "exited with code 0" in launcher.all_ended()


def test_stop_terminates_a_worker_that_stays(launch):
    launcher = launch("import time; time.sleep(600)")
    launcher.stop(0.0)
    assert "killed by SIGTERM" in launcher.all_ended()


def test_stop_kills_workers_that_ignore_it(launch, tmp_path):
    launcher = launch(STUBBORN, STUBBORN)
    logs = [tmp_path / f"worker-{number}.log" for number in (0, 1)]
    wait_until(lambda: all(log.read_text() for log in logs))
    began = time.monotonic()
    launcher.stop(0.0)
    assert time.monotonic() - began < 10.0
    assert "killed by SIGKILL" in launcher.all_ended()
    assert not any(map(runs, pids(launcher)))
    launcher.stop()  # once more does no harm


def test_ctrl_c_in_the_terminal_does_not_reach_the_workers(launch):
    launcher = launch("import time; time.sleep(600)")
    assert os.getsid(pids(launcher)[0]) != os.getsid(0)


@pytest.mark.parametrize(("code", "again"), [(0, False), (1, False), (11, False), (12, True)])
def test_only_a_failed_device_is_a_reason_to_start_a_worker_again(launch, code, again):
    launcher = launch(f"raise SystemExit({code})")
    (pid,) = launcher.pids()
    launcher.cause_of_death(pid)
    assert (launcher.all_ended() is None) == again
    restart = launcher.restart(pid)
    assert (restart is not None) == again
    assert restart is None or (restart.runs_on, restart.times, restart.most) == ("cpu:2", 1, 3)
    assert launcher.restart(pid) is None, "it is another process now"


def test_a_worker_that_runs_or_was_killed_is_not_started_again(launch):
    launcher = launch("import time; time.sleep(600)")
    (pid,) = launcher.pids()
    assert launcher.restart(pid) is None
    os.kill(pid, signal.SIGKILL)
    assert "SIGKILL" in launcher.cause_of_death(pid)
    assert launcher.restart(pid) is None


def test_each_worker_is_started_again_three_times(launch, tmp_path):
    launcher = launch("pass", "print('failed'); raise SystemExit(12)")
    for times in (1, 2, 3):
        failed = launcher.pids()[1]
        launcher.cause_of_death(failed)
        assert launcher.all_ended() is None
        assert launcher.restart(failed).times == times
    wait_until(launcher.all_ended)
    assert launcher.restart(launcher.pids()[1]) is None
    assert "the last one exited with code 12" in launcher.all_ended()
    assert (tmp_path / "worker-1.log").read_text() == "failed\n" * 4


def test_a_worker_that_cannot_be_started_again_is_left_alone(launch, monkeypatch):
    launcher = launch("raise SystemExit(12)")
    (pid,) = launcher.pids()
    launcher.cause_of_death(pid)
    monkeypatch.setattr(local, "command", lambda *_: ["/no/such/program"])
    assert launcher.restart(pid) is None
    assert "the last one exited with code 12" in launcher.all_ended()
