import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.config.layers import DenseLayer
from hogbatch.data.batch import Examples, dense_inputs, single_labels
from hogbatch.store import dataset, row_scores
from hogbatch.store.attach import AttachedSegments, SegmentManifest
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.fence import Fences
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment
from hogbatch.wire.messages import Heartbeat, Optimizer, Ready, Welcome
from hogbatch.workers.session import Session
from tests.support.loopback import Loopback

FEATURES, ROWS, PARAMETERS = 3, 5, 64


class FakeEngine:
    """Runs the test's callbacks; `prepared` and `submitted` record the session's calls."""

    device, label, threads = "cpu", "cpu:2", 2

    def __init__(self):
        self.prepared, self.submitted = [], []
        self.ready = Ready(((16, 0.5),))
        self.on_prepare = lambda: None
        self.on_submit = lambda work: None
        self.post = None

    def prepare(self, assignment, post):
        self.prepared.append(assignment)
        self.post = post
        self.on_prepare()
        return self.ready

    def submit(self, work):
        self.submitted.append(work)
        self.on_submit(work)


class Rig:
    """A session on its own thread, with the test as its coordinator."""

    def __init__(self, received, engine):
        self.engine = engine
        self.loopback = Loopback()
        self.session = Session(self.loopback.connect("worker"), received, engine)
        self._crew = ThreadPoolExecutor(1)

    def start(self):
        self.ended = self._crew.submit(self.session.run)
        return self

    def tell(self, message):
        assert self.loopback.send("worker", message)

    def hear(self, *, beats=False):
        """The next message from the worker."""
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            self.loopback.wait(deadline - time.monotonic())
            for _, message in self.loopback.receive():
                if beats or not isinstance(message, Heartbeat):
                    return message
        raise AssertionError(f"the worker sent nothing within {WITHIN_S} s")

    def close(self):
        self.session.leave()
        self._crew.shutdown()


def welcome(worker=4):
    layers = (DenseLayer(FEATURES, 1, "linear"),)
    optimizer = Optimizer("sgd", 0.0, 0.0, 0.0, 0.0)
    settings = layers, "squared", optimizer, "delta", 1, "off", "float32"
    return Welcome(*settings, worker=worker, name="cpu-0")


@pytest.fixture
def nothing_measured(tmp_path, monkeypatch):
    """Use an empty cache, so that every engine measures its device and uses the same memory."""
    monkeypatch.setenv("HOGBATCH_CACHE", str(tmp_path))


@pytest.fixture
def segments():
    inputs = dense_inputs(np.ones((ROWS, FEATURES), np.float32))
    train = Examples(inputs, single_labels(np.ones(ROWS, np.float32)), FEATURES)
    model, scores = SharedModel.fields(PARAMETERS, 0), row_scores.fields(0, 1)
    shared = model, EpochOrders.fields(ROWS), Fences.fields(), scores
    made = {
        "data": Segment.create("data", arrange(dataset.fields({"train": train.sizes}))),
        "shared": Segment.create("shared", arrange(*shared)),
    }
    dataset.fill(made["data"], [{"train": train}])
    yield made
    for segment in made.values():
        segment.close()


@pytest.fixture
def coordinator():
    """A process in place of the coordinator, which does nothing."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def rig(segments, coordinator):
    """A session that has not been started."""
    manifest = SegmentManifest(coordinator.pid, "a-fingerprint", FEATURES, ())
    made = Rig(AttachedSegments(manifest, segments), FakeEngine())
    yield made
    made.close()


@pytest.fixture
def started(rig):
    """A session that has sent Hello."""
    rig.start()
    hello = rig.hear()
    assert hello.pid == os.getpid()
    return rig


@pytest.fixture
def working(started):
    """A session that has received Welcome and is ready."""
    started.tell(welcome())
    started.hear()
    return started
