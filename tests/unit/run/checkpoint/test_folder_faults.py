"""Checkpoints on a full disk and in killed processes."""

import re
import subprocess
import sys

import numpy as np
import pytest

from hogbatch.run.checkpoint.folder import newest_intact, paths, prune, read, write
from tests.support.killed import killed_at_each_call
from tests.unit.run.checkpoint.test_folder import ARRAYS, names

LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np
from hogbatch.errors import SaveError
from hogbatch.run.checkpoint.folder import write

folder, limit = Path(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    write(folder, {"x": np.zeros(100, np.float32)}, {"why": "x" * 3000})
except SaveError as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [50, 400, 1000], ids=["header", "tensor", "manifest"])
def test_a_full_disk_is_named_and_earlier_checkpoints_stay(tmp_path, limit):
    """RLIMIT_FSIZE in a separate process."""
    path = write(tmp_path, ARRAYS, {"epoch": 3})
    command = [sys.executable, "-c", LIMITED, tmp_path, str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert re.fullmatch(
        rf"{re.escape(str(tmp_path))}: cannot save a checkpoint: File too large "
        r"\(needs 400 B\); earlier ones are intact\n",
        done.stdout,
    )
    assert names(tmp_path) == [path.name]
    assert read(path).description == {"epoch": 3}


WRITE = """
import numpy as np
from hogbatch.run.checkpoint.folder import write

def run(victim):
    write(victim, {"x": np.full(10, 2, np.float32)}, {"number": 2})
"""
PRUNE = """
from hogbatch.run.checkpoint.folder import prune

def run(victim):
    prune(victim, 1)
"""


@pytest.mark.slow
class TestKilled:
    def test_while_writing_nothing_is_lost_and_half_of_one_never_found(self, tmp_path):
        write(tmp_path / "0", {"x": np.full(10, 1, np.float32)}, {"number": 1})
        victims = killed_at_each_call(tmp_path, WRITE)
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
        assert calls.count("c_return fsync") == 4
        assert "c_return write" in unfinished

    def test_while_pruning_half_of_one_is_never_found(self, tmp_path):
        for number in range(3):
            write(tmp_path / "0", ARRAYS, {"number": number})
        victims = killed_at_each_call(tmp_path, PRUNE)
        assert {"c_return rename", "c_return unlink"} <= {call for _, call in victims}
        for folder, _ in victims:
            for path in paths(folder):
                read(path)
            assert newest_intact(folder)[0].description == {"number": 2}
            prune(folder, 1)
            assert names(folder) == ["000003"]
