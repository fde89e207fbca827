"""Segments between real processes: attached, shared, and freed after a SIGKILL."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hogbatch.errors import UsageError
from hogbatch.store.attach import attach_segments
from hogbatch.store.model import SharedModel

COORDINATOR = """
import sys
from hogbatch.store.attach import PublishedSegments
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment

segments = {"shared": Segment.create("shared", arrange(SharedModel.fields(8, 0)))}
SharedModel.of(segments["shared"]).params[:] = 4
published = PublishedSegments("f", 3, segments)
print(published.address, flush=True)
sys.stdin.readline()
"""


def test_a_killed_coordinator_leaves_nothing_behind():
    command = [sys.executable, "-c", COORDINATOR]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as coordinator:
        address = coordinator.stdout.readline().strip()
        manifest, segments = attach_segments(address)
        assert manifest.pid == coordinator.pid
        assert places(coordinator.pid, "memfd:hogbatch-shared") != []
        assert places(coordinator.pid, "/dev/shm") == []
        coordinator.kill()
    with pytest.raises(UsageError, match="its run has ended"):
        attach_segments(address)
    assert SharedModel.of(segments["shared"]).params.tolist() == [4] * 8
    segments["shared"].close()


def places(pid, text):
    """Mappings and open files of a process whose line in /proc holds `text`."""
    root = Path(f"/proc/{pid}")
    files = [os.readlink(fd) for fd in (root / "fd").iterdir()]
    return [line for line in [*(root / "maps").read_text().splitlines(), *files] if text in line]
