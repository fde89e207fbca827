import os
import select
import signal
import subprocess
import sys

import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.errors import DeviceError, HogbatchError
from hogbatch.workers.start import finish


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DeviceError("gpu:0 has failed: it fell off the bus"), 12),
        (HogbatchError("3 merges in a row were not finite"), 1),
        (None, 0),
    ],
)
def test_a_worker_exits_with_one_sentence_and_the_code_of_its_error(error, code, capsys):
    assert finish(error) == code
    assert capsys.readouterr().err == (f"hogbatch worker: {error}\n" if error else "")


def test_a_bug_prints_its_traceback(capsys):
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError as error:
        assert finish(error) == 1
    assert "Traceback" in capsys.readouterr().err


# A process that starts another; that one prints a line once it is set to die with the first.
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], sys.argv[2]])
child.wait()
"""
CHILD = """
import os, sys, time
from hogbatch.machine.process import die_with
os.write(1, b"%d\\n" % os.getpid())
die_with(os.getppid() if sys.argv[1] == "parent" else int(sys.argv[1]))
os.write(1, b"bound\\n")
time.sleep(600)
"""


@pytest.fixture
def family():
    """A process and its child: (the first, the pid of the second, the output of the second)."""
    started = []

    def start(parent):
        process = subprocess.Popen(
            [sys.executable, "-c", PARENT, CHILD, parent], stdout=subprocess.PIPE
        )
        started.append(process)
        return process, int(process.stdout.readline()), process.stdout

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_worker_dies_with_its_launcher_even_while_it_is_suspended(family, stopped):
    parent, child, says = family("parent")
    assert says.readline() == b"bound\n"
    end = os.pidfd_open(child)
    if stopped:
        signal.pidfd_send_signal(end, signal.SIGSTOP)
    parent.kill()
    assert select.select([end], [], [], WITHIN_S)[0]
    os.close(end)


def test_a_worker_whose_launcher_has_died_exits_immediately(family):
    parent, _, says = family(str(os.getpid()))  # not its parent, as after the parent's end
    assert says.readline() == b""
    assert parent.wait(WITHIN_S) == 0
