"""The process that calls Ray, as the one that trains sees it; the calls of Ray are faked."""

import queue
import sys
from contextlib import closing

import numpy as np
import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.cluster.ray import remote
from hogbatch.cluster.ray.calls import Message, packed
from hogbatch.errors import DataError, HogbatchError, NoWorkers

FAKE = """
import os
import sys

from hogbatch.cluster.frames import FrameSocket
from hogbatch.cluster.ray import calls
from hogbatch.errors import DataError

frames = FrameSocket(int(sys.argv[1]))


class Fake:
    def open(self, address, size, per_server):
        return [[f"{size} machines of {address}, {per_server}"], None, "cpu:1"]

    def begin(self, segment):
        assert segment.memory.tobytes()[:3] == b"row"

    def start(self, index, key, start):
        calls.send(frames, calls.Message(calls.FAILED, (key, "it died")))

    def call(self, method, *arguments):
        return getattr(self, method)(*arguments)

    def read_model(self):
        return {"params": self.model["params"] * 2}

    def read_scores(self, start, stop):
        return self.model["params"][start:stop]

    def write_model(self, segment):
        self.model = calls.unpacked(segment)

    def stop(self):
        return {"server.log": b"started", "empty.log": b""}

    def survey(self, *requests):
        raise DataError("bad.csv:1: no number")

    def kill(self):
        print("a line of Ray", flush=True)
        os._exit(1)


fake = Fake()
while received := calls.receive(frames):
    calls.answer(frames, fake, *received)
"""


@pytest.fixture
def cluster(monkeypatch):
    monkeypatch.setattr(
        remote, "module_command", lambda *given: [sys.executable, "-c", FAKE, given[-1]]
    )
    with closing(remote.RemoteCluster("auto", 2, "cpu:1")) as opened:
        yield opened


def test_a_process_that_cannot_start_is_quoted(monkeypatch):
    program = "print(1); raise ImportError('no module')"
    monkeypatch.setattr(remote, "module_command", lambda *_: [sys.executable, "-c", program])
    with pytest.raises(NoWorkers, match=r"exit code 1: ImportError: no module\)"):
        remote.RemoteCluster("auto", 2, "cpu:1")


@pytest.fixture
def failures(cluster):
    """What is reported about servers, after the rows have been given to the cluster."""
    found = queue.SimpleQueue()
    with closing(packed({"data": b"row"})) as data:
        cluster.begin(data, lambda *failure: found.put(failure))
    return found


def test_calls_and_results_arrive_with_arrays_and_bytes(cluster, failures):
    assert cluster.lines == ["2 machines of auto, cpu:1"] and cluster.workers(1) == "cpu:1"
    server = cluster.start(0, "key", b"start")
    assert failures.get(timeout=WITHIN_S) == ("key", "it died")
    server.write_model({"params": np.arange(3, dtype=np.float32), "first": np.empty(0, "f4")})
    assert server.read_model()["params"].tolist() == [0.0, 2.0, 4.0]
    assert server.read_scores(1, 3).tolist() == [1.0, 2.0]
    assert server.stop() == {"server.log": b"started", "empty.log": b""}


def test_errors_are_those_of_the_other_process(cluster):
    with pytest.raises(DataError, match=r"bad\.csv:1: no number"):
        cluster.survey([b"request"])
    with pytest.raises(HogbatchError, match="a call of Ray has failed: AttributeError"):
        remote.RemoteServer(cluster._process, "key").read_mean()


def test_the_loss_of_ray_is_reported_for_every_server_and_every_call(cluster, failures):
    server = cluster.start(0, "key", b"start")
    assert failures.get(timeout=WITHIN_S) == ("key", "it died") and cluster.lost is None
    server.kill()
    reason = "Ray has ended its process with exit code 1"
    cluster_is_lost = f"the connection to the Ray cluster was lost ({reason})"
    assert (
        failures.get(timeout=WITHIN_S) == ("key", cluster_is_lost)
        and cluster.lost == cluster_is_lost
    )
    with pytest.raises(OSError, match="connection to the Ray cluster was lost"):
        server.read_model()
    with pytest.raises(NoWorkers, match="connection to the Ray cluster was lost"):
        cluster.survey([])


def test_a_call_in_progress_ends_when_ray_is_lost(cluster):
    with pytest.raises(OSError, match="connection to the Ray cluster was lost"):
        cluster._process.call(Message("kill"))
