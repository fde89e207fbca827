from contextlib import contextmanager

import pytest

from hogbatch import training
from hogbatch.values import WorkerRequest

REQUESTS = (WorkerRequest("cpu", threads=2), WorkerRequest("gpu", ordinal=0))


class FakeLauncher:
    """Remembers what it was asked to start."""

    def __init__(self):
        self.started, self.stopped = [], False

    def start(self, request, run_dir, cores):
        self.started.append((request, run_dir, cores))

    def stop(self, patience_s):
        self.stopped = True


@pytest.fixture
def launched(monkeypatch, tmp_path):
    """Launches REQUESTS with or without pinning; returns what was started with which cores."""

    @contextmanager
    def pinning(requests):
        assert requests == REQUESTS
        yield [(0, 3), ()]

    def launch(pin):
        monkeypatch.setattr(training, "LocalLauncher", FakeLauncher)
        monkeypatch.setattr(training, "pinning", pinning)
        with training._launched(REQUESTS, tmp_path, pin) as launcher:
            assert not launcher.stopped
        assert launcher.stopped
        return [(request, cores) for request, _, cores in launcher.started]

    return launch


@pytest.mark.parametrize(("pin", "cores"), [(True, [(0, 3), ()]), (False, [(), ()])])
def test_workers_are_started_on_the_cores_claimed_for_them(launched, pin, cores):
    assert launched(pin) == list(zip(REQUESTS, cores, strict=True))
