import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

from hogbatch.machine.process import ProcessIdentity


def test_this_process_runs_and_others_do_not_or_cannot_be_seen():
    own = ProcessIdentity.own()
    assert own.pid == os.getpid() and own.start > 0 and own.is_running() is True
    assert replace(own, start=own.start - 1).is_running() is False  # the same pid later
    for field in ("host", "namespace"):
        assert replace(own, **{field: "elsewhere"}).is_running() is None
    assert ProcessIdentity.of(asdict(own)) == own
    assert ProcessIdentity.of({}) is ProcessIdentity.of(asdict(own) | {"pid": "7"}) is None


def test_a_process_that_has_ended_does_not_run():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stat = Path(f"/proc/{child.pid}/stat").read_text()
    start = int(stat.rpartition(")")[2].split()[19])
    identity = replace(ProcessIdentity.own(), pid=child.pid, start=start)
    assert identity.is_running() is True
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert identity.is_running() is False, "it has ended, but its parent has not waited for it"
    child.communicate()
    assert identity.is_running() is False


def test_a_name_with_spaces_and_parentheses_does_not_hide_the_start(tmp_path):
    (tmp_path / "proc/7").mkdir(parents=True)
    fields = ["S", *map(str, range(1, 19)), "4711", "0"]
    (tmp_path / "proc/7/stat").write_text(f"7 (a) b) {' '.join(fields)}\n")
    identity = ProcessIdentity(os.uname().nodename, "", 7, 4711)
    assert identity.is_running(tmp_path) is True


CYCLES = """
from hogbatch.machine.process import collect_rarely

class Cycle:
    def __init__(self):
        self.own = self
    def __del__(self):
        print("found")

collect_rarely()
cycle = Cycle()
"""


def test_a_process_does_not_look_for_cycles_when_it_ends():
    """With Numba, that takes 0.3 s."""
    done = subprocess.run([sys.executable, "-c", CYCLES], capture_output=True, check=True)
    assert done.stdout == b""
