"""Sketches: bits compared with an oracle, angle estimates, and ranking by products."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hogbatch.kernels.cpu.lsh.hashing import hash_rows
from hogbatch.kernels.cpu.lsh.sketches import WORD_BITS, WORDS, empty_sketches, rank_by_product
from tests.support.kernel_cases import examples

DIMENSION = 192  # enough for the sum of a third of the coordinates to be nearly Gaussian
BITS = WORD_BITS * WORDS
GUARD = -9


def sketch(sketches, x):
    """int32[rows, WORDS]"""
    marks = np.empty((len(x), WORDS), np.int32)
    hash_rows(sketches.functions, np.ascontiguousarray(x, np.float32), marks)
    return marks


def bits_of(marks):
    """[rows, BITS] of 0 and 1, the lowest of each word first."""
    return np.unpackbits(marks.view(np.uint8), axis=1, bitorder="little")


def at_angle(random, x, angle):
    """For each row of x, a unit vector at `angle` to it."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    other = random.standard_normal(x.shape)
    other -= (other * x).sum(axis=1, keepdims=True) * x
    other /= np.linalg.norm(other, axis=1, keepdims=True)
    return np.cos(angle) * x + np.sin(angle) * other


def test_each_bit_is_the_sign_of_its_own_projection():
    random, sketches = np.random.default_rng(1), empty_sketches(DIMENSION, 3, 5)
    x = random.integers(-8, 9, (40, DIMENSION)).astype(np.float32)  # projections are exact
    projected = x @ sketches.functions.projections[:, :BITS]
    # hash k of word t has column k WORDS + t, and is bit k of that word
    expected = (projected > 0).reshape(-1, WORD_BITS, WORDS).transpose(0, 2, 1).reshape(-1, BITS)
    assert (bits_of(sketch(sketches, x)) == expected).all()


@pytest.mark.parametrize("angle", [0.2, 1.5])
def test_the_hamming_distance_matches_theory(angle):
    """A bit differs with probability angle / pi (Goemans and Williamson 1995)."""
    random, fractions = np.random.default_rng(2), []
    x = random.standard_normal((40, DIMENSION))
    y = at_angle(random, x, angle)
    for seed in range(10):
        sketches = empty_sketches(DIMENSION, 1, seed)
        ours, theirs = sketch(sketches, x), sketch(sketches, y)
        bits = (bits_of(ours) != bits_of(theirs)).sum(axis=1)
        fractions.append(np.mean(bits) / BITS)
        # Charikar 2002: the cosine estimate for this Hamming distance
        told = sketches.cosines[bits]
        assert abs(told.mean() - np.cos(angle)) < 0.02 and told.std() < 0.1
    error = np.std(fractions, ddof=1) / np.sqrt(len(fractions))
    assert abs(np.mean(fractions) - angle / np.pi) <= 3 * error < 0.01


@given(seed=st.integers(0, 2**32 - 1), met=st.integers(0, 30), limit=st.integers(0, 35))
@examples
def test_ranking_is_by_product_with_ties_in_input_order(seed, met, limit):
    random, classes = np.random.default_rng(seed), 50
    sketches = empty_sketches(16, classes, 0)
    sketches.neurons[:] = sketch(sketches, random.integers(-1, 2, (classes, 16)))
    sketches.neurons[classes // 2 :] = sketches.neurons[: classes // 2]  # twins
    sketches.lengths[:] = random.integers(0, 3, classes) / 2
    (mark,) = sketch(sketches, random.standard_normal((1, 16)))
    near = random.permutation(classes)[:met].astype(np.int32)
    found = np.full(limit + 1, GUARD, np.int32)
    size = rank_by_product(sketches, mark, near, limit, np.empty(limit, np.float32), found[:limit])
    differing_bits = (bits_of(sketches.neurons) != bits_of(mark[np.newaxis])).sum(axis=1)
    promise = sketches.lengths * np.cos(np.pi * differing_bits / BITS).astype(np.float32)
    expected = sorted(near.tolist(), key=lambda neuron: -promise[neuron])[:limit]
    assert found[:size].tolist() == expected and found[limit] == GUARD
