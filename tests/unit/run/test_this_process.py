"""Small data are trained on in the calling process, with the results of a worker process."""

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import hogbatch
from benchmarks.common.job import WITHIN_S
from hogbatch.errors import NoWorkers
from hogbatch.run import this_server
from hogbatch.workers.cpu import CpuEngine

ROWS, FEATURES = 120, 5


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    random = np.random.default_rng(3)
    x = random.normal(size=(ROWS, FEATURES))
    path = tmp_path_factory.mktemp("data") / "plane.npz"
    np.savez(path, X=x, y=np.where(x[:, 0] + x[:, 1] > 0, 1.0, -1.0))
    return path


@pytest.fixture
def train(file, tmp_path):
    """Trains on `file`, in a run directory of this test."""
    runs = iter(range(10))

    def call(**settings):
        usual = {"hidden": (8,), "epochs": 4, "quiet": True}
        return hogbatch.train(file, run_dir=tmp_path / f"run-{next(runs)}", **usual | settings)

    return call


def children():
    """The child processes of this thread."""
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


def test_small_data_start_no_process_and_leave_no_thread(train):
    before, others, seen = set(threading.enumerate()), children(), []
    run = train(on_evaluation=lambda _: seen.append(children() - others))
    assert run.status == "finished" and run.summary["workers"][0]["rows"] == 4 * ROWS * 0.8
    assert seen and not any(seen)
    assert set(threading.enumerate()) <= before
    assert not list(run.run_dir.glob("worker-*.log"))


def test_a_named_worker_is_a_process(train):
    run = train(workers="cpu:1")
    assert len(list(run.run_dir.glob("worker-*.log"))) == 1


def test_the_model_is_that_of_a_worker_process(train, monkeypatch):
    here = train(deterministic=True)
    monkeypatch.setattr(this_server, "is_small", lambda *_: False)
    there = train(deterministic=True)
    assert not list(here.run_dir.glob("worker-*.log")) and list(there.run_dir.glob("worker-*.log"))
    for name, tensor in here.model.tensors.items():
        np.testing.assert_array_equal(tensor, there.model.tensors[name])


def test_another_thread_can_train(train):
    runs = []
    thread = threading.Thread(target=lambda: runs.append(train()))
    thread.start()
    thread.join(WITHIN_S)
    assert runs[0].status == "finished"


def test_a_failure_of_the_thread_ends_the_run_with_its_reason(train, monkeypatch):
    def fail(*_):
        raise RuntimeError("no such row")

    monkeypatch.setattr(CpuEngine, "_compute", fail)
    with pytest.raises(NoWorkers, match="RuntimeError: no such row"):
        train()


def test_ctrl_c_ends_the_run_with_its_model(train):
    sent = []

    def interrupt(_):
        if not sent:
            sent.append(os.kill(os.getpid(), signal.SIGINT))

    run = train(on_evaluation=interrupt, epochs=1000)
    assert (run.status, run.summary["reason"]) == ("stopped", "interrupted")
    assert run.model.predict(np.zeros((1, FEATURES))).shape == (1,)
