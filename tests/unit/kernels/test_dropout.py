"""Dropout leaves out the same outputs in all backends, and gradients are those of the rest."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.kernels.contract import LOSS, SGD, TOTALS
from hogbatch.kernels.dropout import key_of
from hogbatch.kernels.executor import Randomness
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.kernels.reference import NUMPY_KERNELS
from tests.support.executor_runs import PLAIN, Run
from tests.support.kernel_backends import DEVICES, Backend
from tests.support.kernel_cases import FORMS
from tests.support.pairs import pairs

KEY = key_of(2**40 + 3, 7)


def mixed(bits):
    """The last step of MurmurHash3, with integers of Python."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ bits >> shift) * factor % 2**32
    return bits ^ bits >> 16


def dropped(kernels, fraction, key, layer, numbers, width, stored):
    out = np.ones((len(numbers), stored), np.float32)
    out[:, width:] = 0
    kernels.drop(fraction, key, layer, np.array(numbers), width, out)
    return out


def test_the_random_numbers_are_those_of_the_formula(kernels):
    fraction, layer, numbers, width = 0.3, 1, [5, 0, 70_000, 5], 35
    out = dropped(kernels, fraction, KEY, layer, numbers, width, 48)
    key = mixed((mixed((2**40 + 3) % 2**32) + 7) % 2**32)
    assert key == KEY[0]
    first = mixed((key + layer) % 2**32)
    for b, number in enumerate(numbers):
        row = mixed((first + number) % 2**32)
        drawn = [mixed((row + h * 0x9E3779B9) % 2**32) for h in range(width)]
        assert_allclose(out[b, :width], np.where(np.array(drawn) < 0.3 * 2**32, 0, 1 / 0.7), 1e-6)
    assert not out[:, width:].any()


def test_expected_values_are_kept_and_masks_are_independent(kernels):
    draws = (0, 1, 0, 0), (1, 1, 0, 0), (0, 2, 0, 0), (0, 1, 1, 0), (0, 1, 0, 300)
    for fraction in (0.1, 0.5, 0.9):
        first, *others = (
            dropped(
                kernels,
                fraction,
                key_of(seed, update),
                layer,
                np.arange(start, start + 300),
                512,
                512,
            )
            for seed, update, layer, start in draws
        )
        deviation = np.sqrt(fraction / (1 - fraction))  # of an output that was 1
        for out in (first, *others):
            assert out.mean() == pytest.approx(1, abs=5 * deviation / np.sqrt(out.size))
        for axis, count in enumerate(first.shape):  # no unit and no row is preferred
            assert 0.8 < first.mean(axis=axis).std() * np.sqrt(count) / deviation < 1.2
        for out in others:
            both = ((out > 0) & (first > 0)).mean()
            assert both == pytest.approx((1 - fraction) ** 2, abs=2.5 / np.sqrt(first.size))


def test_the_mask_of_a_row_does_not_depend_on_its_batch(kernels):
    whole = dropped(kernels, 0.4, KEY, 0, range(9), 20, 32)
    assert_array_equal(dropped(kernels, 0.4, KEY, 0, [7, 2], 20, 32), whole[[7, 2]])


@pairs(sparse=FORMS, output_major=[False, True], max_scores=[1, 1 << 26])
def test_gradients_are_finite_differences_of_the_loss_with_the_same_mask(
    sparse, output_major, max_scores
):
    run = Run(
        Backend(HostDevice(), NUMPY_KERNELS),
        activation="relu",
        hidden=(18, 5),
        dtype=np.float64,
        sparse=sparse,
        output_major=output_major,
        max_scores=max_scores,
    )
    random, rows, start = np.random.default_rng(1), np.array([6, 1, 3, 3, 0]), run.params.copy()
    numbers = rows + 100  # those in the set decide, not the positions of rows in a buffer
    dropout = Randomness(0.4, KEY)

    def train(params, rate):
        run.params, run.totals = params.copy(), np.zeros(TOTALS)
        hyper = PLAIN._replace(rate=rate)
        data = run.inputs, run.labels, rows, run.loss, SGD, hyper, run.totals, numbers
        run.executor().train_batch(*data, dropout)
        return run.totals[LOSS] / len(rows)

    train(start, PLAIN.rate)
    gradient = (start - run.params) / PLAIN.rate
    assert abs(train(start, 0.0) - run.mean_loss(start, rows)) > 1e-3  # which leaves nothing out
    for _ in range(6):
        direction = random.normal(size=start.size)
        near = [train(start + h * direction, 0.0) for h in (-1e-6, 1e-6)]
        assert gradient @ direction == pytest.approx((near[1] - near[0]) / 2e-6, rel=1e-4, abs=1e-6)


@pairs(device_kernels=DEVICES, sparse=FORMS)
def test_every_device_trains_as_the_reference_in_double(device_kernels, sparse):
    exact = Run(
        Backend(HostDevice(), NUMPY_KERNELS), "softmax", "relu", sparse=sparse, dtype=np.float64
    )
    rough = Run(device_kernels, "softmax", "relu", sparse=sparse)
    rows = np.array([6, 1, 3, 3, 0])
    for run in (rough, exact):
        there = [run.backend.move(each) for each in (run.params, *run.slots)]
        data = [run.backend.move(each) for each in (run.inputs, run.labels, rows)]
        totals = run.backend.move(run.totals)
        dropout = Randomness(0.4, run.backend.move(KEY))
        hyper = PLAIN._replace(rate=0.1)
        run.executor(*there).train_batch(*data, run.loss, SGD, hyper, totals, data[2], dropout)
        run.backend.fetch(there[0], run.params)
    assert_allclose(rough.params, exact.params, rtol=1e-4, atol=1e-5)
