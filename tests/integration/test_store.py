"""Segments between real processes: sent, shared, read-only, and freed after a SIGKILL."""

import os
import select
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from hogbatch.errors import UsageError
from hogbatch.store.fence import Fences
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment
from hogbatch.store.segment_server import (
    PeerCredentials,
    SegmentManifest,
    SegmentServer,
    describe_segments,
    fetch_segments,
)
from tests.support.fault_injection import WITHIN_S

WORKER = f"""
import mmap, os, sys
from hogbatch.store.fence import Fences
from hogbatch.store.segment_server import fetch_segments
from hogbatch.store.model import SharedModel

manifest, segments, coordinator = fetch_segments(sys.argv[1], {WITHIN_S})
model, fences = SharedModel.of(segments["shared"]), Fences.of(segments["shared"])
model.params[2] = 7
print(manifest.run, manifest.features, coordinator, flush=True)
sys.stdin.readline()
print(model.params[3], fences.current(5), flush=True)

def outcome(attempt):
    try:
        attempt()
    except Exception as error:
        return type(error).__name__
    return "written"

data = segments["data"]
x = data.array("x")
attempts = {{
    "view": lambda: x.__setitem__(0, 9),
    "flag": lambda: x.setflags(write=True),
    "mapping": lambda: mmap.mmap(data.fd, 4096),
    "write": lambda: os.pwrite(data.fd, b"x", 0),
    "size": lambda: os.ftruncate(data.fd, 0),
}}
outcomes = [outcome(attempt) for attempt in attempts.values()]
print(x.sum(), *outcomes, data.map_for_device().flags.writeable, flush=True)
"""
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


@pytest.fixture
def segments():
    shared = arrange(SharedModel.fields(8, 1), Fences.fields())
    made = {
        "data": Segment.create("data", arrange({"x": ("<f4", (4,))})),
        "shared": Segment.create("shared", shared),
    }
    made["data"].array("x")[:] = [1, 2, 3, 4]
    made["data"].make_read_only()
    yield made
    for segment in made.values():
        segment.close()


def test_two_processes_see_each_others_writes_but_a_worker_can_only_read_the_data(
    tmp_path, segments, start
):
    """Only `map_for_device`, which opens them again, makes them writable, for drivers to pin."""
    manifest = SegmentManifest("run-1", "abc", 54, describe_segments(segments))
    model, fences = SharedModel.of(segments["shared"]), Fences.of(segments["shared"])
    with closing(SegmentServer.open(tmp_path / "run", manifest, segments)) as server:
        worker = start(WORKER, server.address)
        assert select.select([server], [], [], WITHIN_S)[0], "nobody came"
        assert server.serve() == [PeerCredentials(worker.pid, os.geteuid())]
        assert worker.stdout.readline().split() == ["run-1", "54", str(os.getpid())]
        assert model.params[2] == 7
        model.params[3] = 9
        fences.revoke(5)
        worker.stdin.write("\n")
        worker.stdin.flush()
        assert worker.stdout.readline().split() == ["9.0", "1"]
        read_only = ["ValueError", "ValueError", "PermissionError", "OSError", "OSError"]
        assert worker.stdout.readline().split() == ["10.0", *read_only, "True"]


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
