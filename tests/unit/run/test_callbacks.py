"""The callbacks of `hogbatch.train`: when they are called, and how they end a run."""

import numpy as np
import pytest

import hogbatch


@pytest.fixture
def train(tmp_path):
    """Trains on a few rows, in a run directory of this test."""
    random = np.random.default_rng(3)
    x = random.normal(size=(60, 3))
    np.savez(tmp_path / "data.npz", X=x, y=np.where(x[:, 0] > 0, 1.0, 0.0))

    def call(**settings):
        usual = {"hidden": (4,), "deterministic": True, "run_dir": tmp_path / "run", "quiet": True}
        return hogbatch.train(tmp_path / "data.npz", **usual | settings)

    return call


def test_each_evaluation_is_reported(train):
    found = []
    run = train(epochs=3, on_evaluation=found.append)
    assert [each.epochs for each in found] == [1, 2, 3]
    assert [each.test_loss for each in found] == [
        each["test_loss"] for each in run.summary["history"]
    ]


def test_the_events_of_workers_are_reported(train):
    found = []
    train(epochs=1, on_worker=lambda event, fields: found.append((event, fields["worker"])))
    assert [event for event, _ in found] == ["worker_joined", "worker_ready"]
    assert {worker for _, worker in found} == {"cpu-0"}


def test_the_finished_run_is_reported_once(train):
    found = []
    run = train(epochs=1, on_end=found.append)
    assert found == [run]


def test_a_callback_that_returns_true_ends_the_run(train, capsys):
    run = train(epochs=100, on_evaluation=lambda evaluation: evaluation.epochs >= 2)
    assert (run.status, run.summary["reason"]) == ("stopped", "stopped by a callback")
    assert 2 <= run.summary["epochs"] < 100
    assert run.model.predict(np.zeros((1, 3))).shape == (1,)
    assert "stopped by a callback" in capsys.readouterr().err


def test_other_results_do_not_end_it(train):
    assert train(epochs=2, on_evaluation=lambda _: 1).status == "finished"


def test_an_exception_is_raised_when_the_model_is_saved(train, tmp_path):
    def fail(_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        train(epochs=100, on_evaluation=fail)
    assert hogbatch.load_model(tmp_path / "run" / "model.safetensors").network.features == 3
