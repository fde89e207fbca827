"""Checkpoints on a full disk and in killed processes."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from hogbatch.errors import SaveError
from hogbatch.run.checkpoint.folder import newest_intact, paths, prune, read, write
from tests.unit.run.checkpoint.test_folder import ARRAYS, names


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


@pytest.fixture
def path(folder):
    return write(folder, ARRAYS, {"epoch": 3})


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from hogbatch.run.checkpoint.folder import write
from hogbatch.errors import SaveError

folder, limit = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    write(folder, {"x": np.zeros(100, np.float32)}, {"why": "x" * 3000})
except SaveError as error:
    print(error)
"""


class TestFullDisk:
    @pytest.mark.parametrize("limit", [50, 400, 1000], ids=["header", "tensor", "manifest"])
    def test_it_is_named_and_earlier_ones_stay(self, folder, path, limit):
        """RLIMIT_FSIZE in a separate process."""
        command = [sys.executable, "-c", LIMITED, folder, str(limit)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert re.fullmatch(
            rf"{re.escape(str(folder))}: cannot save a checkpoint: File too large "
            r"\(needs [34]\.\d+ kB, [0-9.]+ [kMG]B free\); earlier ones are intact\n",
            done.stdout,
        )
        assert names(folder) == [path.name]
        assert read(path).description == {"epoch": 3}

    def test_what_is_needed_and_what_is_free_are_named(self, folder, path, monkeypatch):
        real = os.open

        def full(path, flags, *mode, **keywords):
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                return real("/dev/full", os.O_WRONLY)
            return real(path, flags, *mode, **keywords)

        monkeypatch.setattr(os, "open", full)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 3e8))
        with pytest.raises(
            SaveError, match=r"No space left on device \(needs 30 MB, 300 MB free\); earlier"
        ):
            write(folder, {"x": np.zeros(20_000_000, np.uint8)}, {"why": "x" * 10_000_000})
        assert names(folder) == [path.name]

    def test_a_run_directory_that_is_gone_is_a_save_error(self, folder):
        with pytest.raises(SaveError, match=r"No such file or directory \(needs \d+ B\)$"):
            write(folder / "checkpoints", ARRAYS, {})


DOOMED = """
import errno, os, shutil, signal, sys
from pathlib import Path
import numpy as np
from hogbatch.machine import files
from hogbatch.run.checkpoint.folder import prune, write

CALLS = {"open", "write", "flush", "fsync", "close", "mkdir", "link", "rename", "unlink", "rmdir"}
place, what = Path(sys.argv[1]), sys.argv[2]

def unsupported(*arguments):
    raise OSError(errno.EOPNOTSUPP, "Operation not supported")

def die_at(count):
    def see(frame, event, function):
        nonlocal count
        if event in ("c_call", "c_return") and function.__name__ in CALLS:
            count -= 1
            if count == 0:
                os.write(1, f"{event} {function.__name__}\\n".encode())
                os.kill(os.getpid(), signal.SIGKILL)
    sys.setprofile(see)

if what == "write named":
    files._write_unnamed = unsupported
code, count = -signal.SIGKILL, 0
while code == -signal.SIGKILL:
    count += 1
    victim = place / str(count)
    shutil.copytree(place / "0", victim)
    child = os.fork()
    if not child:
        die_at(count)
        if what == "prune":
            prune(victim, 1)
        else:
            write(victim, {"x": np.full(10, 2, np.float32)}, {"number": 2})
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(code)
"""


def doomed(place, what):
    """Run it on copies of `place`/0, killed before and after each call that modifies the disk.

    Each copy with the call it died at, and the last one, which did not die, with "".
    """
    command = [sys.executable, "-c", DOOMED, place, what]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    calls = [*done.stdout.splitlines(), ""]
    return [(place / str(count), call) for count, call in enumerate(calls, 1)]


@pytest.mark.slow
class TestKilled:
    @pytest.mark.parametrize("how", ["unnamed", "named"])
    def test_while_writing_nothing_is_lost_and_half_of_one_never_found(self, tmp_path, how):
        write(tmp_path / "0", {"x": np.full(10, 1, np.float32)}, {"number": 1})
        victims = doomed(tmp_path, f"write {how}")
        found, unfinished = [], set()
        for folder, call in victims:
            checkpoint, bad = newest_intact(folder)
            number = checkpoint.description["number"]
            assert bad == []
            assert (checkpoint.arrays["x"] == number).all()
            found.append(number)
            if any(name.startswith(".") for name in names(folder)):
                unfinished.add(call)
            prune(folder, 3)
            assert names(folder) == ["000001", "000002"][:number]
            following = write(folder, ARRAYS, {"number": 3})
            assert following.name == f"{number + 1:06d}"
            assert read(following).description == {"number": 3}
        calls = [call for _, call in victims]
        assert found == sorted(found)  # from the rename on it is there, and not before
        assert found.index(2) == calls.index("c_return rename")
        assert calls.count("c_return fsync") == (6 if how == "unnamed" else 4)
        assert ("c_return write" in unfinished) == (how == "named")

    def test_while_pruning_half_of_one_is_never_found(self, tmp_path):
        for number in range(3):
            write(tmp_path / "0", ARRAYS, {"number": number})
        victims = doomed(tmp_path, "prune")
        assert {"c_return rename", "c_return unlink"} <= {call for _, call in victims}
        for folder, _ in victims:
            for path in paths(folder):
                read(path)
            assert newest_intact(folder)[0].description == {"number": 2}
            prune(folder, 1)
            assert names(folder) == ["000003"]
