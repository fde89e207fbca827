"""Products of every shape and form, compared exactly: sums of small integers do not round."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hogbatch.jit import kernel
from hogbatch.kernels.cpu import brgemm
from hogbatch.kernels.cpu.brgemm import address
from hogbatch.kernels.cpu.simd import WIDTH
from hogbatch.kernels.cpu.tiles import ACTIVATE, ADD, STORE, BlockOffsets, Epilogue
from tests.support.kernel_cases import examples

pytestmark = pytest.mark.vector_width

GUARD = 40  # floats around every array that must not be read or written
ALPHA = 0.5

rows = st.sampled_from([*range(1, 10), 12, 15, 16, 17, 20, 31, 32, 33, 48, 70])
columns = st.sampled_from([1, 2, 5, 8, 15, 16, 17, 48, 63, 75, 80, 130])
depths = st.sampled_from([1, 3, 8, 16, 17, 40, 600])
seeds = st.integers(0, 2**32 - 1)


def guarded(random, height, width):
    """Integers in an array[height, width] with NaN before and after it."""
    cells = np.full(height * width + 2 * GUARD, np.nan, np.float32)
    inner = cells[GUARD:-GUARD].reshape(height, width)
    inner[...] = random.integers(-8, 9, inner.shape)
    return inner


def untouched(inner):
    """Whether the guard of an array is unchanged."""
    cells = inner.base
    while cells.base is not None:
        cells = cells.base
    return np.isnan(cells[:GUARD]).all() and np.isnan(cells[-GUARD:]).all()


@kernel
def multiply(a, turned, b, c, kind, alpha, bias, floor):
    left = brgemm.matrix(a)
    if turned:
        left = brgemm.transposed(left)
    epilogue = Epilogue(kind, alpha, address(bias), floor)
    sizes = c.shape[0], c.shape[1], b.shape[0]
    right, out = brgemm.matrix(b), brgemm.matrix(c)
    brgemm.multiply(sizes[0], sizes[1], sizes[2], left, right, out, brgemm.single_block(), epilogue)


@kernel
def multiply_blocks(a, b, c, offsets):
    epilogue = Epilogue(STORE, 1.0, 0, 0.0)
    left, right, out = brgemm.matrix(a[0]), brgemm.matrix(b[0]), brgemm.matrix(c)
    blocks = BlockOffsets(address(offsets), offsets.shape[0])
    brgemm.multiply(c.shape[0], c.shape[1], b.shape[1], left, right, out, blocks, epilogue)


@kernel
def multiply_transposed(a, b, c, packed, product, alpha, beta):
    m, n, k = a.shape[0], b.shape[0], a.shape[1]
    many = brgemm.packed_rows(m)
    turned = brgemm.Matrix(address(packed), many, 1)
    scratch = brgemm.Matrix(address(product), many, 1)
    left, right, out = brgemm.matrix(a), brgemm.matrix(b), brgemm.matrix(c)
    brgemm.transpose(many, k, left, turned, 0)
    brgemm.multiply_transposed(m, n, k, left, turned, right, out, scratch, alpha, beta)


@kernel
def transpose(a, c, beta):
    brgemm.transpose(a.shape[0], a.shape[1], brgemm.matrix(a), brgemm.matrix(c), beta)


@pytest.mark.parametrize("kind", [STORE, ADD, ACTIVATE])
@pytest.mark.parametrize("turned", [False, True], ids=["plain", "transposed"])
@examples
@given(m=rows, n=columns, k=depths, seed=seeds)
def test_a_product_of_any_shape_is_exact_and_stays_within_its_arrays(kind, turned, m, n, k, seed):
    random = np.random.default_rng(seed)
    a = guarded(random, k, m) if turned else guarded(random, m, k)
    b, c, bias = guarded(random, k, n), guarded(random, m, n), guarded(random, 1, n)
    product, before = (a.T if turned else a) @ b, c.copy()
    multiply(a, turned, b, c, kind, ALPHA, bias, 0.0)
    expected = {
        STORE: ALPHA * product,
        ADD: before + product,
        ACTIVATE: np.maximum(product + bias, 0),
    }
    np.testing.assert_array_equal(c, expected[kind])
    assert untouched(c)


@pytest.mark.parametrize("beta", [0, 1])
@examples
@given(m=rows, n=columns, k=depths, seed=seeds)
def test_a_product_with_b_transposed_is_exact_and_stays_within_its_arrays(beta, m, n, k, seed):
    random = np.random.default_rng(seed)
    a, b, c = guarded(random, m, k), guarded(random, n, k), guarded(random, m, n)
    packed, product = guarded(random, k, m), guarded(random, n, m)
    expected = ALPHA * a @ b.T + beta * c
    if beta == 0:
        c[...] = np.nan  # with beta 0, C is not read
    multiply_transposed(a, b, c, packed, product, ALPHA, beta)
    np.testing.assert_array_equal(c, expected)
    assert untouched(c) and untouched(packed) and untouched(product)


@pytest.mark.parametrize("beta", [0, 1])
@examples
@given(m=rows, n=columns, seed=seeds)
def test_a_transpose_is_exact_and_stays_within_its_arrays(beta, m, n, seed):
    random = np.random.default_rng(seed)
    a, c = guarded(random, m, n), guarded(random, n, m)
    expected = a.T + beta * c
    transpose(a, c, beta)
    np.testing.assert_array_equal(c, expected)
    assert untouched(c)


@examples
@given(count=st.integers(0, 4), m=rows, n=columns, k=depths, seed=seeds)
def test_blocks_at_any_offsets_are_summed(count, m, n, k, seed):
    random = np.random.default_rng(seed)
    a = np.stack([guarded(random, m, k) for _ in range(5)])
    b = np.stack([guarded(random, k, n) for _ in range(5)])
    chosen = random.integers(0, 5, (count, 2))  # in any order, with repetitions
    c = guarded(random, m, n)
    multiply_blocks(a, b, c, chosen * (m * k, k * n))
    expected = sum((a[i] @ b[j] for i, j in chosen), np.zeros((m, n)))
    np.testing.assert_array_equal(c, expected)
    assert untouched(c)


def test_a_nan_sum_stays_nan_with_any_floor():
    a = np.array([[np.nan], [1]], np.float32)
    b, c, bias = np.ones((1, 20), np.float32), np.zeros((2, 20), np.float32), np.zeros((1, 20))
    multiply(a, False, b, c, ACTIVATE, 1.0, bias.astype(np.float32), 0.0)
    assert np.isnan(c[0]).all() and (c[1] == 1).all()


def test_a_product_of_depth_0_is_0():
    c = np.full((3, 2 * WIDTH + 1), 7, np.float32)
    a, b = np.empty((3, 0), np.float32), np.empty((0, c.shape[1]), np.float32)
    multiply(a, False, b, c, STORE, 1.0, c, 0.0)
    assert not c.any()
