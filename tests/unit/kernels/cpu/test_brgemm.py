"""Products of every shape and form, compared exactly: sums of small integers do not round."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_array_equal

from hogbatch.kernels.contract import LINEAR, RELU, SGD, Slots
from hogbatch.kernels.cpu import dense
from hogbatch.kernels.cpu.brgemm import Terms, sum_of_products
from hogbatch.kernels.cpu.simd import WIDTH
from hogbatch.kernels.cpu.tiles import STORE, Epilogue, Matrix
from tests.support.kernel_cases import HYPER, NONE, examples, junk

pytestmark = pytest.mark.vector_width

GUARD = 40  # floats around every array that must not be read or written

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


@pytest.mark.parametrize("kind", [LINEAR, RELU], ids=["linear", "relu"])
@examples
@given(m=rows, n=columns, k=depths, seed=seeds)
def test_a_layer_of_any_shape_is_exact_and_stays_within_its_arrays(kind, m, n, k, seed):
    random = np.random.default_rng(seed)
    x, weights, bias = guarded(random, m, k), guarded(random, k, n), guarded(random, 1, n)[0]
    out, expected = guarded(random, m, n), x @ weights + bias
    dense.dense_layer(x, k, weights, bias, kind, n, out)
    assert_array_equal(out, np.maximum(expected, 0) if kind == RELU else expected)
    assert untouched(out)


@examples
@given(m=rows, n=columns, k=depths, seed=seeds)
def test_a_product_with_a_transposed_is_exact_and_stays_within_its_arrays(m, n, k, seed):
    random = np.random.default_rng(seed)
    x, grad, out = guarded(random, k, m), guarded(random, k, n), guarded(random, m, n)
    dense.transposed_product(x, grad, out)
    assert_array_equal(out, x.T @ grad)
    assert untouched(out)


@examples
@given(m=rows, n=columns, k=depths, terms=st.integers(2, 4), seed=seeds)
def test_a_sum_of_products_is_exact_and_leaves_out_what_is_between_the_matrices(
    m, n, k, terms, seed
):
    random, out = np.random.default_rng(seed), junk(m, n)
    left, right = (random.integers(-8, 9, (terms, *sizes)) for sizes in ((m + 1, k), (k + 2, n)))
    a, b = left.astype(np.float32), right.astype(np.float32)
    a[:, m:], b[:, k:] = np.nan, np.nan
    sizes = Terms(k, terms, (m + 1) * k, (k + 2) * n)
    first = Matrix(a.ctypes.data, k, 1), Matrix(b.ctypes.data, n, 1), Matrix(out.ctypes.data, n, 1)
    sum_of_products(m, n, sizes, *first, Epilogue(STORE, 0, 0.0))
    assert_array_equal(out, (left[:, :m] @ right[:, :k]).sum(axis=0))


@examples
@given(m=rows, n=columns, k=depths, seed=seeds, first=st.integers(0, 3))
def test_a_product_is_added_to_some_rows_only(m, n, k, seed, first):
    random, hyper = np.random.default_rng(seed), HYPER._replace(l2=0.0)
    x, scaled = guarded(random, k, m + first), guarded(random, k, n)
    weights = guarded(random, m + first + 1, n)
    expected = weights.copy()
    expected[first : first + m] += x[:, first:].T @ scaled
    space, slots = dense.backward_scratch(k, n), Slots(NONE, NONE)
    dense.update_block(SGD, hyper, x, scaled, slots, weights, first, m, space)
    assert_array_equal(weights, expected)
    assert untouched(weights)


@examples
@given(m=rows, n=columns, k=depths, seed=seeds)
def test_a_product_with_b_transposed_is_exact_and_stays_within_its_arrays(m, n, k, seed):
    random = np.random.default_rng(seed)
    grad, weights, out = guarded(random, m, k), guarded(random, n, k), guarded(random, m, n)
    packed, product = guarded(random, k, m).reshape(-1), guarded(random, n, m).reshape(-1)
    expected = grad @ weights.T
    out[...] = np.nan  # is not read
    space = dense.BackwardScratch(NONE.reshape(-1), packed, product, NONE.reshape(-1))
    dense.pass_all_down(grad, weights, space, out)
    assert_array_equal(out, expected)
    assert untouched(out) and untouched(packed) and untouched(product)


def test_a_nan_sum_stays_nan_with_any_floor():
    x, weights, out = np.float32([[np.nan], [1]]), np.ones((1, 20), np.float32), junk(2, 20)
    dense.dense_layer(x, 1, weights, np.zeros(20, np.float32), RELU, 20, out)
    assert np.isnan(out[0]).all() and (out[1] == 1).all()


def test_a_product_of_depth_0_is_0():
    out = np.full((3, 2 * WIDTH + 1), 7, np.float32)
    x, grad = np.empty((0, 3), np.float32), np.empty((0, out.shape[1]), np.float32)
    dense.transposed_product(x, grad, out)
    assert not out.any()
