"""Segments between real processes: sent, shared, read-only, and freed after a SIGKILL."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from hogbatch.errors import UsageError
from hogbatch.store.model import SharedModel
from hogbatch.store.segment_server import (
    fetch_segments,
)
from tests.support.fault_injection import WITHIN_S

COORDINATOR = """
import select, sys
from pathlib import Path
from hogbatch.store.segment_server import SegmentManifest, SegmentServer, describe_segments
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment

segments = {"shared": Segment.create("shared", arrange(SharedModel.fields(8, 0)))}
SharedModel.of(segments["shared"]).params[:] = 4
manifest = SegmentManifest("r", "f", 3, describe_segments(segments))
segment_server = SegmentServer.open(Path(sys.argv[1]), manifest, segments)
print(segment_server.address, flush=True)
select.select([segment_server], [], [])
segment_server.serve()
sys.stdin.readline()
"""


@pytest.fixture
def start():
    """Start a child that runs `code`; it is killed at the end, whatever became of the test."""
    with ExitStack() as cleanup:

        def begin(code, *arguments):
            command = [sys.executable, "-c", code, *map(str, arguments)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            child = cleanup.enter_context(subprocess.Popen(command, **pipes))
            cleanup.callback(child.kill)
            return child

        yield begin


def test_a_killed_coordinator_leaves_nothing_behind(tmp_path, start):
    run_dir = tmp_path / "run"
    coordinator = start(COORDINATOR, run_dir)
    address = coordinator.stdout.readline().strip()
    received = fetch_segments(address, WITHIN_S)
    assert received.coordinator_pid == coordinator.pid
    assert places(coordinator.pid, "memfd:hogbatch-shared") != []
    assert places(coordinator.pid, "/dev/shm") == []
    coordinator.kill()
    coordinator.wait()
    assert list(run_dir.iterdir()) == []
    with pytest.raises(UsageError, match="has the run finished"):
        fetch_segments(address, WITHIN_S)
    assert SharedModel.of(received.segments["shared"]).params.tolist() == [4] * 8
    received.segments["shared"].close()


def places(pid, text):
    """Mappings and open files of a process whose line in /proc holds `text`."""
    root = Path(f"/proc/{pid}")
    files = [os.readlink(fd) for fd in (root / "fd").iterdir()]
    return [line for line in [*(root / "maps").read_text().splitlines(), *files] if text in line]
