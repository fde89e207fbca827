"""NaN and Inf in a row, in a GPU's change and in the model: each cause is named."""

from pathlib import Path

import numpy as np
import pytest

from hogbatch.events.event import (
    EpochEnded,
    Evaluation,
    MergeRefused,
    Poisoned,
    Recovered,
    RowsSkipped,
)
from hogbatch.model.file import load_model
from hogbatch.store.attach import attach_segments
from hogbatch.store.model import SharedModel
from tests.support.fault_injection import ENDLESS, wait_for

ROOT = Path(__file__).parents[2]
ROWS, FEATURES, BAD = 4000, 8, 17
SMALL = ("--hidden", 16, "--eval-seconds", 0.2)


@pytest.fixture
def sets(tmp_path):
    """Two files of rows; one row of the first is too large for the sums of float32."""
    random = np.random.default_rng(0)
    inputs = random.standard_normal((ROWS, FEATURES), np.float32)
    labels = (inputs[:, 0] + inputs[:, 1] > 0).astype(np.int64)
    test = tmp_path / "test.npz"
    np.savez(test, X=inputs[:500], y=labels[:500])
    inputs[BAD] = 3e38
    train = tmp_path / "train.npz"
    np.savez(train, X=inputs, y=labels)
    return train, "--test", test


def check_model(job):
    """The model that was saved is finite, and has learnt."""
    model = load_model(job.run_dir / "model.safetensors")
    assert all(np.isfinite(tensor).all() for tensor in model.tensors.values())
    assert np.isfinite(job.summary()["test"]["loss"])


@pytest.mark.parametrize(("worker", "optimizer"), [("cpu:2", "adagrad"), ("gpu:host", "adam")])
def test_a_row_that_overflows_is_left_out_and_named(job, sets, worker, optimizer):
    flags = ("--workers", worker, "--epochs", 3, "--optimizer", optimizer, "--lr", 0.02)
    job.train(*sets, *SMALL, *flags, "--scale", "none", "--validation-fraction", 0)
    assert job.finish() == 0
    check_model(job)
    summary = job.summary()
    assert summary["status"] == "finished" and summary["faults"]["rows_skipped"] == 3
    assert summary["test"]["value"] > 0.8
    for epoch in range(3):
        event = job.wait_for_event(RowsSkipped, epoch=epoch)
        assert (event.skipped, event.row) == (1, BAD)
        assert event.worker == summary["workers"][0]["name"]
    assert f"row {BAD} of the training set" in job.printed(job.coordinator)


def test_a_change_of_a_gpu_that_is_not_finite_is_refused_and_named(job):
    # The rows of one interval are less than the part that may be skipped between evaluations.
    flags = ("--gpu-batch", "64:128", "--merge-every", 2, "--epochs", 2, "--eval-seconds", 1000)
    flags += ("--keep", "last")  # no evaluation within the first epoch
    job.coordinate("a9a", "--hidden", 16, *flags)
    job._start("tests.support.faulty_gpu_worker", job.run_dir, PYTHONPATH=str(ROOT))
    assert job.finish() == 0
    check_model(job)
    refused = job.wait_for_event(MergeRefused)
    assert (refused.worker, refused.refused) == ("gpu-0", 1)
    assert refused.epoch == 0 and refused.rows[0] < refused.rows[1]
    faults = job.summary()["faults"]
    assert faults["merges_refused"] == 1 and faults["roll_backs"] == faults["workers_lost"] == 0
    assert 0 < faults["rows_skipped"] < 5 * 512
    assert "gpu-0: 1 merges over the rows" in job.printed(job.coordinator)


def poison(job, place):
    """Write NaN into a weight of the model that is trained, and wait until that is noticed."""
    received = attach_segments(job.address()["store"])
    before = len(job.events(Poisoned))

    def noticed():
        params = SharedModel.of(received.segments["shared"]).params
        finite = np.isfinite(params[place])
        if len(job.events(Poisoned)) > before:
            return True
        if finite:  # also if a worker that was just updating it has overwritten NaN
            params[place] = np.nan
        return False

    try:
        wait_for(noticed, "the NaN is noticed")
    finally:
        for segment in received.segments.values():
            segment.close()


@pytest.mark.parametrize(("workers", "layer", "times"), [("cpu:2", 0, 4), ("cpu:1,gpu:host", 1, 1)])
def test_a_model_that_is_poisoned_from_outside_goes_back_to_what_it_was(job, workers, layer, times):
    """By a weight of a feature that some rows have, or by one that every row meets.

    Any number of times, as long as training makes progress between them, which also restores the
    learning rate; without progress, the third time ends the run.
    """
    job.train("a9a", *SMALL, "--workers", workers, "--gpu-batch", "64:512", *ENDLESS)
    job.wait_for_event(EpochEnded)
    weight = 3 * 16 + 5 if layer == 0 else 128 * 16 + 16 + 5  # 123 features are stored as 128
    named = "layers.0.weight[3, 5]" if layer == 0 else "layers.1.weight[5, 0]"
    for time in range(1, times + 1):
        poison(job, weight)
        job.wait_for_event(Poisoned, time, times=1, where=named)
        job.wait_for_event(Recovered, time, rate_factor=1.0)
    job.wait_for_event(Evaluation, len(job.events(Evaluation)) + 2)
    job.interrupt()
    check_model(job)
    faults = job.summary()["faults"]
    assert faults["roll_backs"] == times and faults["workers_lost"] == 0
    assert job.summary()["test"]["loss"] < 0.4
    said = job.printed(job.coordinator)
    assert f"the model is not finite at {named}" in said
    assert "the learning rate is now 100% of its" in said
    assert job.leftovers() == []
