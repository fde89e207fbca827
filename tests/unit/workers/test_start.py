import os
import subprocess
import sys
from unittest.mock import Mock

import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.errors import DeviceError, HogbatchError
from hogbatch.machine.process import exit_after


class Ended(BaseException):
    """In place of the end of the process."""


@pytest.fixture
def exit_code(monkeypatch):
    """Returns the exit code of a process that raises an error."""

    def ended(code):
        raise Ended(code)

    def code_of(error):
        monkeypatch.setattr("os._exit", ended)
        with pytest.raises(Ended) as end:
            exit_after("worker", Mock(side_effect=error))
        monkeypatch.undo()
        return end.value.args[0]

    return code_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DeviceError("gpu:0 has failed: it fell off the bus"), 12),
        (HogbatchError("3 merges in a row were not finite"), 1),
    ],
)
def test_a_worker_exits_with_one_sentence_and_the_code_of_its_error(error, code, exit_code, capsys):
    assert exit_code(error) == code
    assert capsys.readouterr().err == f"hogbatch worker: {error}\n"


def test_a_bug_prints_its_traceback(exit_code, capsys):
    assert exit_code(ZeroDivisionError("a bug")) == 1
    assert "Traceback" in capsys.readouterr().err


CHILD = """
import sys
from hogbatch.machine.process import die_with
die_with(int(sys.argv[1]))
print("continued")
"""


def test_a_worker_whose_launcher_has_died_exits_immediately():
    not_its_parent = str(os.getppid())
    command = [sys.executable, "-c", CHILD, not_its_parent]
    assert subprocess.run(command, stdout=subprocess.PIPE, timeout=WITHIN_S).stdout == b""
