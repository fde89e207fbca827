"""A tracker in another process, with a tracker of the test in it."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.trackers import remote
from hogbatch.trackers.base import Point, RunResult
from hogbatch.trackers.remote import RemoteTracker, TrackerFailed
from tests.support.tracked_runs import described

PROGRAM = """
    import json, os, sys
    from hogbatch.trackers import child

    class Written:
        def __init__(self):
            self.file = open({path!r}, "a")
        def start(self, run):
            print("noise on standard output")
            self.write("start", run.run_dir, run.settings)
            return "it has begun"
        def log(self, points):
            ((step, seconds, values),) = points
            if step == 13:
                raise ValueError("token s3cret-token is refused")
            if step == 14:
                os._exit(9)
            self.write("log", step, values)
        def finish(self, result):
            self.write("finish", result.status)
        def write(self, *what):
            print(json.dumps(what), file=self.file, flush=True)

    child.create = lambda name: Written()
    child.main()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls"


@pytest.fixture
def tracker(path, monkeypatch):
    program = textwrap.dedent(PROGRAM).format(path=str(path))

    def start(command, **options):
        return original([sys.executable, "-c", program, command[-1]], **options)

    original = subprocess.Popen
    monkeypatch.setattr(remote.subprocess, "Popen", start)
    monkeypatch.setenv("SERVER_TOKEN", "s3cret-token")
    tracker = RemoteTracker("written")
    yield tracker
    tracker.abandon()
    if (process := tracker._process) is not None:
        process.stdin.close()
        process.stdout.close()


def calls(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_calls_reach_the_other_process(tracker, path, tmp_path):
    assert tracker.start(described(tmp_path)) == "it has begun"
    tracker.log([Point(10, 1.5, {"loss/test": 0.5})])
    tracker.finish(RunResult("finished"))
    assert calls(path) == [
        ["start", str(tmp_path), {"seed": 3}],
        ["log", 10, {"loss/test": 0.5}],
        ["finish", "finished"],
    ]
    assert tracker._process.returncode == 0


def test_an_error_comes_back_without_credentials(tracker, tmp_path):
    tracker.start(described(tmp_path))
    with pytest.raises(TrackerFailed, match=r"^ValueError: token \*\*\* is refused$"):
        tracker.log([Point(13, 1.5, {})])


def test_a_process_that_dies_is_reported(tracker, tmp_path):
    tracker.start(described(tmp_path))
    with pytest.raises(TrackerFailed, match="exit code 9"):
        tracker.log([Point(14, 1.5, {})])


def test_a_coordinator_that_is_killed_ends_the_run(tracker, path, tmp_path):
    tracker.start(described(tmp_path))
    tracker._process.stdin.close()  # as the kernel does
    assert tracker._process.wait(WITHIN_S) == 0
    assert calls(path)[-1] == ["finish", "killed"]


def test_no_process_starts_after_the_end(tracker, tmp_path):
    tracker.abandon()
    with pytest.raises(TrackerFailed):
        tracker.start(described(tmp_path))
    assert tracker._process is None and os.path.exists(tmp_path)
