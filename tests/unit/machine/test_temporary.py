import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from hogbatch.machine.temporary import TemporaryDirectory

USE = """
import sys
from hogbatch.machine.temporary import TemporaryDirectory

print(TemporaryDirectory().path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other_process(tmp_path, monkeypatch):
    """A process that uses a temporary directory, and its path."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", USE], text=True, **pipes) as process:
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_the_directory_of_a_killed_process_is_removed_with_the_next_one(other_process, tmp_path):
    process, path = other_process
    (path / "run").mkdir()
    own = TemporaryDirectory()
    assert path.is_dir() and own.path.stat().st_mode & 0o777 == 0o700
    process.send_signal(signal.SIGKILL)
    process.wait()
    other = TemporaryDirectory()
    assert sorted(tmp_path.iterdir()) == sorted([own.path, other.path])
    own.close()
    own.close()
    other.close()
    assert list(tmp_path.iterdir()) == []
