"""Packed active neurons, and the hashing of changed neurons."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.kernels.cpu.lsh.functions import DWTA, draw
from hogbatch.kernels.cpu.lsh.hashing import hash_rows
from hogbatch.kernels.cpu.lsh.neurons import HASH_BLOCK, hash_neurons
from hogbatch.kernels.cpu.lsh.sketches import WORDS, empty_sketches
from tests.support.kernel_cases import padded


class Hashes:
    """Neurons, with their codes and sketches."""

    def __init__(self, count):
        random = np.random.default_rng(3)
        self.functions = draw(DWTA, 18, 2, 5, 6, 1)
        self.sketches = empty_sketches(18, count, 2)
        self.weights = padded(random, count, 18)
        self.changed = np.ones(count, np.uint8)
        self.codes = np.full((count, 5), -1, np.int32)

    def hash(self, ids):
        ids = np.array(ids, np.int64)
        hash_neurons(self.functions, self.sketches, self.weights, ids, self.changed, self.codes)

    def check(self, ids):
        """Check that the codes and sketches of `ids` are correct, and the others unset."""
        codes, marks = np.full_like(self.codes, -1), np.zeros_like(self.sketches.neurons)
        exact = np.full_like(self.codes, -1), np.empty((len(self.codes), WORDS), np.int32)
        hash_rows(self.functions, self.weights, exact[0])
        hash_rows(self.sketches.functions, self.weights, exact[1])
        lengths, changed = np.zeros(len(codes)), np.ones(len(codes))
        codes[ids], marks[ids], changed[ids] = exact[0][ids], exact[1][ids], 0
        lengths[ids] = np.linalg.norm(self.weights[ids], axis=1)
        assert_array_equal(self.codes, codes)
        assert_array_equal(self.sketches.neurons, marks)
        assert_allclose(self.sketches.lengths, lengths, rtol=1e-5)
        assert_array_equal(self.changed, changed)


@pytest.mark.parametrize(
    "ids", [(), (4,), (9, 2, 5), range(HASH_BLOCK + 7)], ids=["none", "one", "some", "many"]
)
def test_only_the_given_neurons_are_hashed_like_rows(ids):
    hashes = Hashes(HASH_BLOCK + 9)
    hashes.hash(ids)
    hashes.check(list(ids))
