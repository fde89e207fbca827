from contextlib import contextmanager
from pathlib import Path

import pytest

from hogbatch.config.values import WorkerRequest
from hogbatch.errors import UsageError
from hogbatch.run import training

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


def test_a_run_that_trained_on_no_row_says_that_it_has_no_model(tmp_path):
    run = training.Run(Path("there"), None, {"status": "stopped", "test": None}, 130)
    assert run.test_loss is None
    for use in (lambda: run.model, lambda: run.save(tmp_path / "model.safetensors")):
        with pytest.raises(UsageError, match=r"there ended before any row .* \(stopped\)"):
            use()
    assert list(tmp_path.iterdir()) == []
