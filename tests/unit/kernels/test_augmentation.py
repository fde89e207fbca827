"""Augmentation: the pictures of a batch, also computed one by one with integers of Python."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from hogbatch.config.augmentation import Augmentation
from hogbatch.data.batch import dense_inputs
from hogbatch.kernels.dropout import key_of
from hogbatch.kernels.reference import NUMPY_KERNELS
from tests.support.kernel_backends import DEVICES
from tests.support.pairs import pairs
from tests.unit.kernels.test_dropout import KEY, mixed


def gathered(kernels, pictures, rows, numbers, flip, shift, key=KEY):
    inputs = dense_inputs(pictures.reshape(len(pictures), -1))
    out = np.full((len(rows), inputs.dense.shape[1]), np.nan, np.float32)
    given = Augmentation(pictures.shape[1:], flip, shift, 0)
    kernels.gather_augmented(inputs, rows, numbers, given, key, out)
    return out.reshape(len(rows), *pictures.shape[1:])


def drawn(number, shift):
    """Whether the picture of a row is mirrored, and the moves of its cells."""
    picture = mixed((mixed((int(KEY[0]) + 0xFFFFFFFF) % 2**32) + number) % 2**32)
    bits = [mixed((picture + column * 0x9E3779B9) % 2**32) for column in range(3)]
    return bits[0] >= 2**31, *(each * (2 * shift + 1) // 2**32 - shift for each in bits[1:])


@pairs(device_kernels=DEVICES, shape=[(5, 4, 1), (4, 7, 3)], flip=[False, True], shift=[0, 1, 3])
def test_pictures_are_mirrored_and_moved_as_the_formula_says(device_kernels, shape, flip, shift):
    pictures = np.random.default_rng(0).normal(size=(9, *shape)).astype(np.float32)
    rows, numbers = np.arange(40) % 9, np.append(np.arange(39) + 3, 70_000)
    out = gathered(device_kernels, pictures, rows, numbers, flip, shift)
    for b, (row, number) in enumerate(zip(rows, numbers.tolist(), strict=True)):
        mirrored, down, across = drawn(number, shift)
        picture = pictures[row]
        if flip and mirrored:  # its columns are counted from the right
            picture, across = picture[:, ::-1], -across
        padded = np.pad(picture, ((shift, shift), (shift, shift), (0, 0)), mode="edge")
        moved = padded[shift + down :, shift + across :][: shape[0], : shape[1]]
        assert_array_equal(out[b], moved)


def test_half_of_the_pictures_are_mirrored_and_all_moves_are_equally_frequent():
    pictures, numbers = np.arange(35, dtype=np.float32).reshape(1, 5, 7, 1), np.arange(4000)
    for update in (1, 2):
        key, rows = key_of(3, update), np.zeros(4000, np.int64)
        out = gathered(NUMPY_KERNELS, pictures, rows, numbers, True, 2, key)[..., 0]
        counts = np.unique(out[:, 2, 3], return_counts=True)[1]  # what is in the middle then
        assert len(counts) == 25 and np.abs(counts / 160 - 1).max() < 0.4
        assert (out[:, 2, 4] < out[:, 2, 3]).mean() == pytest.approx(0.5, abs=0.05)


def test_pictures_that_are_mirrored_twice_are_as_before():
    pictures = np.random.default_rng(0).normal(size=(30, 3, 4, 2)).astype(np.float32)
    rows = np.arange(30)
    once = gathered(NUMPY_KERNELS, pictures, rows, rows, True, 0)
    assert 0 < (once == pictures).all(axis=(1, 2, 3)).sum() < 30
    assert_array_equal(gathered(NUMPY_KERNELS, once, rows, rows, True, 0), pictures)
