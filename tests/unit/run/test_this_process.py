"""Small data are trained on in the calling process; callbacks are called, and end a run."""

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import hogbatch
from hogbatch.errors import NoWorkers
from hogbatch.run import this_server
from hogbatch.workers.cpu import CpuEngine

ROWS, FEATURES = 120, 5


@pytest.fixture
def train(tmp_path):
    """Trains on a few rows, in a new run directory of this test."""
    x = np.random.default_rng(3).normal(size=(ROWS, FEATURES))
    np.savez(tmp_path / "plane.npz", X=x, y=np.where(x[:, 0] + x[:, 1] > 0, 1.0, -1.0))
    runs = iter(range(10))

    def call(**settings):
        usual = {"hidden": (8,), "epochs": 4, "quiet": True, "run_dir": tmp_path / f"{next(runs)}"}
        return hogbatch.train(tmp_path / "plane.npz", **usual | settings)

    return call


def children():
    """The child processes of this thread."""
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


def logs(run):
    return list(run.run_dir.glob("worker-*.log"))


def test_small_data_start_no_process_and_leave_no_thread(train):
    before, others, seen = set(threading.enumerate()), children(), []
    run = train(on_evaluation=lambda _: seen.append(children() - others))
    assert run.status == "finished" and run.summary["workers"][0]["rows"] == 4 * (ROWS - 24 - 48)
    assert seen and not any(seen) and not logs(run)
    assert set(threading.enumerate()) <= before


def test_the_model_is_that_of_a_worker_process(train, monkeypatch):
    here = train(deterministic=True)
    monkeypatch.setattr(this_server, "is_small", lambda *_: False)
    there = train(deterministic=True)
    assert not logs(here) and len(logs(there)) == 1
    for name, tensor in here.model.tensors.items():
        np.testing.assert_array_equal(tensor, there.model.tensors[name])


def test_a_failure_of_the_thread_ends_the_run_with_its_reason(train, monkeypatch):
    def fail(*_):
        raise RuntimeError("no such row")

    monkeypatch.setattr(CpuEngine, "_compute", fail)
    with pytest.raises(NoWorkers, match="RuntimeError: no such row"):
        train()


def test_evaluations_events_of_workers_and_the_end_are_reported(train):
    evaluations, events, ended = [], [], []
    run = train(
        deterministic=True,
        on_evaluation=lambda each: evaluations.append(each) or 1,  # only True ends a run
        on_worker=lambda event, fields: events.append((event, fields["worker"])),
        on_end=ended.append,
    )
    assert [each.epochs for each in evaluations if each.epochs >= 1] == [1, 2, 3, 4]
    assert evaluations[0].rows == 0 and ended == [run]
    losses = [each["validation_loss"] for each in run.summary["history"]]
    assert [each.validation_loss for each in evaluations] == losses
    assert events == [("worker_joined", "cpu-0"), ("worker_ready", "cpu-0")]


@pytest.mark.parametrize("how", ["a callback", "Ctrl-C"])
def test_a_run_that_is_ended_has_a_model(train, capsys, how):
    def end(_):
        if how == "Ctrl-C":
            os.kill(os.getpid(), signal.SIGINT)
        return how == "a callback"

    run = train(on_evaluation=end, epochs=1000)
    reason = "interrupted" if how == "Ctrl-C" else "stopped by a callback"
    assert (run.status, run.summary["reason"]) == ("stopped", reason)
    assert run.model.predict(np.zeros((1, FEATURES))).shape == (1,)
    assert reason in capsys.readouterr().err


def test_an_exception_of_a_callback_is_raised_when_the_model_is_saved(train, tmp_path):
    def fail(_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        train(epochs=1000, on_evaluation=fail)
    assert hogbatch.load_model(tmp_path / "0" / "model.safetensors").network.features == FEATURES
