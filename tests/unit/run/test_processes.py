from contextlib import contextmanager

import pytest

from hogbatch.config.values import WorkerRequest
from hogbatch.run import processes

REQUESTS = (WorkerRequest("cpu", threads=2), WorkerRequest("gpu", ordinal=0))


class FakeLauncher:
    """Records which workers it is asked to start."""

    def __init__(self):
        self.started, self.stopped = [], False

    def start(self, request, run_dir, cores):
        self.started.append((request, run_dir, cores))

    def stop(self, patience_s):
        self.stopped = True


@pytest.fixture
def launched(monkeypatch, tmp_path):
    """A function that launches REQUESTS and returns the requests with their cores."""

    @contextmanager
    def pinning(requests):
        assert requests == REQUESTS
        yield [(0, 3), ()]

    def launch(pin):
        monkeypatch.setattr(processes, "LocalLauncher", FakeLauncher)
        monkeypatch.setattr(processes, "pinning", pinning)
        with processes.launched_workers(REQUESTS, tmp_path, pin) as launcher:
            assert not launcher.stopped
        assert launcher.stopped
        return [(request, cores) for request, _, cores in launcher.started]

    return launch


@pytest.mark.parametrize(("pin", "cores"), [(True, [(0, 3), ()]), (False, [(), ()])])
def test_workers_are_started_on_the_cores_claimed_for_them(launched, pin, cores):
    assert launched(pin) == list(zip(REQUESTS, cores, strict=True))
