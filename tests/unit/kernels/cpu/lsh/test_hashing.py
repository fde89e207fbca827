"""Families of hash functions, compared with a slow oracle and with theoretical collision rates."""

from itertools import product

import numpy as np
import pytest

from hogbatch.kernels.cpu.lsh.functions import (
    DWTA,
    FAMILIES,
    PROJECTION_SPARSITY,
    SIMHASH,
    draw,
)
from hogbatch.kernels.cpu.lsh.hashing import MAX_PROBES, hash_rows
from tests.support import lsh_theory as theory
from tests.support.pairs import pairs

families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
WIDE = 256  # the theory assumes that the sum of a third of the coordinates is nearly Gaussian


def hashed(functions, x):
    codes = np.full((len(x), functions.tables), -1, np.int32)
    hash_rows(functions, np.ascontiguousarray(x, np.float32), codes)
    return codes


def single_hashes(family, x, count, seed):
    """[rows, count]: the values of single hashes."""
    return hashed(draw(family, x.shape[1], 1, count, 10, seed), x)


def sparse(random, rows, width, fraction):
    """Gaussian numbers, of which `fraction` are kept and the others are exactly zero."""
    x = random.standard_normal((rows, width)).astype(np.float32)
    x[random.random(x.shape) >= fraction] = 0
    return x


# --- by an oracle ---------------------------------------------------------------------------------


def signs(functions, x):
    """[rows, K L]"""
    wide = x.astype(np.float64) @ functions.projections.astype(np.float64)
    return (wide[:, : functions.hashes * functions.tables] > 0).astype(int)


def winner(functions, x, h):
    """The winner of one bin by the family's definition; None if all coordinates are excluded."""
    bin_ = functions.bins[h].tolist()
    counted = [j for j, i in enumerate(bin_) if x[i] != 0]
    return max(counted, key=lambda j: x[bin_[j]], default=None)


def winners(functions, x):
    """[rows, K L]; empty bins borrow as defined by the functions."""
    out = []
    for row in x:
        own = [winner(functions, row, h) for h in range(len(functions.bins))]
        asked = list(own)
        for h, mine in enumerate(own):
            attempts = (
                functions.probe * (h * MAX_PROBES + n) + functions.offset for n in range(MAX_PROBES)
            )
            others = [own[(a % 2**32) * len(own) >> 32] for a in attempts]
            found = (other for other in others if other is not None)
            asked[h] = next(found, 0) if mine is None else mine
        out.append(asked)
    return np.array(out)


@pairs(family=FAMILIES, bits=[5, 32], fraction=[1.0, 0.1])  # bits are mixed, or concatenated
def test_bucket_numbers_match_the_definition(family, bits, fraction):
    random = np.random.default_rng(7)
    x = sparse(random, 50, 40, fraction)
    x = (np.rint(x * 8) / 8).astype(np.float32)  # sums are exact
    functions = draw(family, 40, 3, 4, bits, seed=3)
    values = (signs if family == SIMHASH else winners)(functions, x).reshape(50, 3, 4)
    keys = (values * functions.multipliers).sum(axis=1) % 2**32 >> functions.shift
    assert np.array_equal(hashed(functions, x), keys)


@families
def test_padding_columns_are_ignored(family):
    random = np.random.default_rng(37)
    for dimension, beyond in product((1, 5, 8, 37), (0.0, 9.0)):
        x = -np.abs(random.standard_normal((6, dimension))).astype(np.float32)  # zero would win
        functions = draw(family, dimension, 2, 5, 12, seed=0)
        stored = np.full((6, 48), beyond, np.float32)
        stored[:, :dimension] = x
        assert np.array_equal(hashed(functions, stored), hashed(functions, x))


@families
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_constant_rows_have_valid_buckets(family):
    functions = draw(family, 32, 4, 6, 4, seed=1)
    for row in (0.0, np.nan, np.inf, -np.inf):
        codes = hashed(functions, np.full((3, 32), row, np.float32))
        assert ((codes >= 0) & (codes < 16)).all()
        assert (codes == codes[0]).all()
    assert hashed(functions, np.zeros((0, 32))).shape == (0, 6)


# --- as drawn -------------------------------------------------------------------------------------


@families
def test_functions_depend_on_the_seed_only(family):
    x = np.random.default_rng(0).standard_normal((20, 48))
    first, same, other = (hashed(draw(family, 48, 2, 8, 9, seed), x) for seed in (4, 4, 5))
    assert np.array_equal(first, same)
    assert (first != other).mean() > 0.3


def test_a_third_of_each_projection_is_plus_or_minus_one():
    functions = draw(SIMHASH, 50, 5, 9, 5, seed=2)
    used, padding = functions.projections[:, :45], functions.projections[:, 45:]
    assert set(np.unique(used)) == {-1, 0, 1}
    assert (np.abs(used).sum(axis=0) == -(-50 // PROJECTION_SPARSITY)).all()
    assert abs(used.mean()) < 0.05 and not padding.any()
    assert len(np.unique(used, axis=1).T) == 45


def test_bins_are_pieces_of_permutations():
    bins = draw(DWTA, 50, 5, 9, 5, seed=2).bins
    assert bins.shape == (45, 8)
    each = 50 // 8
    for start in range(0, 45 - each, each):
        piece = bins[start : start + each].ravel()
        assert len(set(piece.tolist())) == len(piece) and piece.min() >= 0 and piece.max() < 50


def test_unrelated_rows_collide_with_one_over_the_number_of_buckets():
    x = np.random.default_rng(1).standard_normal((64, 64))
    pairs = np.triu_indices(64, 1)
    met, bits = [], 6
    for seed in range(12):
        codes = hashed(draw(DWTA, 64, 6, 8, bits, seed), x)  # six hashes of 8 values: none agree
        assert codes.max() < 1 << bits
        met.append((codes[pairs[0]] == codes[pairs[1]]).mean())
    assert np.std(met) < 0.01
    assert abs(np.mean(met) - 2.0**-bits) <= 3 * np.std(met, ddof=1) / np.sqrt(len(met))


# --- by theory ------------------------------------------------------------------------------------


def assert_agreement(family, x, y, draws, count):
    """Check that collision rates of x[n] and y[n] are within 3 standard errors of theory.

    Bins of one permutation depend on each other, draws do not: the error is that between draws.
    """
    rows = np.concatenate([x, y])
    codes = np.array([single_hashes(family, rows, count, seed) for seed in range(draws)])
    rates = (codes[:, : len(x)] == codes[:, len(x) :]).mean(axis=2)  # [draws, pairs]
    expected = np.array([theory.AGREEMENT[family](*pair) for pair in zip(x, y, strict=True)])
    errors = rates.std(axis=0, ddof=1) / np.sqrt(draws)
    assert errors.max() < 0.02  # otherwise the test is too weak
    assert (np.abs(rates.mean(axis=0) - expected) <= 3 * errors + 1e-12).all()
    return expected


LIKENESS = np.array([1.0, 0.95, 0.8, 0.5, 0.0, -0.7])[:, None]


@families
def test_collision_rates_of_dense_vectors_match_theory(family):
    random = np.random.default_rng(11)
    width = WIDE if family == SIMHASH else 64
    x, own = random.standard_normal((2, len(LIKENESS), width)).astype(np.float32)
    y = (LIKENESS * x + np.sqrt(1 - LIKENESS**2) * own).astype(np.float32)
    expected = assert_agreement(family, x, y, draws=16, count=160)
    assert expected[0] == 1.0 and (np.diff(expected) < 0).all()
