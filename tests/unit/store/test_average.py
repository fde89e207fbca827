"""The moving mean of the parameters during training."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from benchmarks.common.job import wait_for
from hogbatch.store import average
from hogbatch.store.average import MovingMean
from hogbatch.store.model import SharedModel

NONE = np.empty(0, np.float32)


@pytest.fixture
def model(monkeypatch):
    monkeypatch.setattr(average, "BLOCK_VALUES", 7)  # several pieces, the last one short
    return SharedModel(
        np.zeros(30, np.float32), NONE, NONE, np.zeros(1, np.int64), np.zeros(1, np.int64)
    )


def test_the_mean_is_shown_in_the_place_of_the_model_and_the_model_put_back(model):
    random, mean, expected = np.random.default_rng(0), MovingMean(model), np.zeros(30)
    for fraction in (1, 3 / 4, 3 / 5, 3 / 6):
        stood = random.standard_normal(30, np.float32)
        model.params[:] = stood
        mean.show(True)
        expected += fraction * (stood - expected)
        assert_allclose(model.params, expected, rtol=1e-5, atol=1e-6)
        mean.show(False)
        assert_array_equal(model.params, stood)


def test_a_late_sample_weighs_a_tenth(model):
    mean = MovingMean(model)
    for value in (0.0,) * 40 + (1.0,):
        model.params[:] = value
        mean.show(True)
        shown = model.params.copy()
        mean.show(False)
    assert_allclose(shown, 0.1, rtol=1e-5)


def test_a_thread_samples_as_long_as_there_are_updates(model, monkeypatch):
    monkeypatch.setattr(average, "INTERVAL_S", 0.001)
    mean = MovingMean(model)

    def wait_for_sample(number):
        def sampled():
            with mean._lock:  # it is incremented before the sample is added
                return mean._samples == number

        wait_for(sampled, f"sample {number} is taken")

    with mean.sampling():
        model.params[:] = 2.0
        model.steps[0] = 1
        wait_for_sample(1)
        model.params[:] = 4.0
        model.merges[0] = 1
        wait_for_sample(2)
        mean.show(True)
        assert_allclose(model.params, 3.5 + 0.6 * 0.5)
        model.steps[0] = 2
        assert mean._lock.locked()  # no samples are taken while the mean is shown
        mean.show(False)
        wait_for_sample(4)
    assert_array_equal(model.params, 4.0)


def test_the_memory_of_the_mean_is_taken_before_training_and_used_again(model):
    mean = MovingMean(model)
    with mean.sampling():
        taken = mean._mean_buffer
        for value in (np.nan, 2.0):  # after a roll-back, nothing is left of the samples before
            model.params[:] = value
            mean.sample()
            mean.reset()
        mean.sample()
        assert mean._mean_buffer is taken and taken.tolist() == [2.0] * 30


def test_a_change_is_not_sampled_while_the_mean_is_shown(model):
    """One thread does everything in a rehearsal: it must not wait for itself."""
    mean = MovingMean(model)
    model.params[:] = 1.0
    mean.show(True)
    model.steps[0] += 1
    mean.sample_change()
    assert_array_equal(model.params, np.ones(30))
    mean.show(False)
    model.params[:] = 3.0
    mean.sample_change()
    mean.show(True)
    assert ((model.params > 1.0) & (model.params < 3.0)).all()
    mean.show(False)
