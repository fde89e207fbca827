import os
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
    ],
)
def test_a_worker_exits_with_one_sentence_and_the_code_of_its_error(error, code, capsys):
    assert finish(error) == code
    assert capsys.readouterr().err == f"hogbatch worker: {error}\n"


def test_a_bug_prints_its_traceback(capsys):
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError as error:
        assert finish(error) == 1
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
