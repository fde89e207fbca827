import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.data.batch import csr_inputs
from hogbatch.kernels.contract import ACTIVATIONS, LINEAR, RELU, SGD, Slots
from hogbatch.kernels.reference import NUMPY_KERNELS
from tests.support import kernel_cases as cases
from tests.support.kernel_backends import KERNELS
from tests.support.kernel_cases import HYPER, NONE, Shape, junk, padded, some_rows
from tests.support.pairs import pairs

pytestmark = pytest.mark.vector_width

GUARD = 64  # floats on each side
WIDTHS = [1, 2, 8, 16, 48, 512]  # a GPU divides a row among its threads in different ways

# Complete panels of vectors, and remainders.
wide_shapes = st.builds(
    Shape,
    st.sampled_from([1, 5, 16]),
    st.sampled_from([3, 40]),
    st.sampled_from([4, 64, 112, 127, 128, 144, 300, 513]),
    st.integers(0, 2**32 - 1),
)


def guarded(array):
    """A copy of `array` with guards, and the memory around it."""
    memory = np.full(array.size + 2 * GUARD, 7, array.dtype)
    inside = memory[GUARD : GUARD + array.size].reshape(array.shape)
    inside[...] = array
    return inside, memory


def unharmed(memory):
    return (memory[:GUARD] == 7).all() and (memory[-GUARD:] == 7).all()


def uneven_rows(random, features=400):
    """Rows with from 0 to `features` stored values, and a batch of them in which rows repeat."""
    counts = [0, 1, 2, 31, 33, 0, 127, 129, 300, features]
    indptr = np.concatenate(([0], np.cumsum(counts)))
    chosen = [np.sort(random.choice(features, count, replace=False)) for count in counts]
    indices = np.concatenate(chosen).astype(np.int32)
    inputs = csr_inputs(indptr, indices, cases.numbers(random, len(indices)))
    return inputs, some_rows(random, 37, of=len(counts))


@cases.examples
@given(shape=cases.shapes | wide_shapes)
def test_csr_forward_is_the_dense_layer(kernels, shape):
    random = shape.random
    inputs, rows = cases.csr_set(random, shape.fan_in), some_rows(random, shape.batch)
    weights, bias = cases.weights_and_bias(random, shape.fan_in, shape.width)
    x = cases.toarray(inputs, len(weights))[rows]
    for activation in ACTIVATIONS.values():
        out, memory = guarded(junk(shape.batch, weights.shape[1]))
        expected = junk(*out.shape)
        kernels.csr_forward(inputs, rows, weights, bias, activation, shape.width, out)
        NUMPY_KERNELS.dense_forward(x, weights, bias, activation, shape.width, expected)
        assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
        assert not out[:, shape.width :].any() and unharmed(memory)


@pytest.mark.parametrize("width", WIDTHS)
def test_csr_forward_adds_up_rows_of_any_length(kernels, width):
    random, real = np.random.default_rng(1), max(1, width - 3)
    inputs, rows = uneven_rows(random)
    weights, bias = cases.weights_and_bias(random, 400, real)
    weights[33, 0] = np.nan  # stays NaN, and in its column
    out, expected = junk(len(rows), weights.shape[1]), junk(len(rows), weights.shape[1])
    kernels.csr_forward(inputs, rows, weights, bias, RELU, real, out)
    NUMPY_KERNELS.csr_forward(inputs, rows, weights, bias, RELU, real, expected)
    assert np.isnan(expected).any()
    assert_array_equal(out, expected)


def step_densely(kind, inputs, rows, grad, slots, weights):
    """Update all rows, and restore those that the batch did not touch; return which it touched."""
    x = cases.toarray(inputs, len(weights))[rows].astype(float)
    ones = csr_inputs(inputs.indptr, inputs.indices, np.ones_like(inputs.values))
    touched = cases.toarray(ones, len(weights))[rows].any(axis=0)
    before = [array.copy() for array in (weights, *slots)]
    NUMPY_KERNELS.step(kind, HYPER, x.T @ grad, slots, weights)
    for array, old in zip((weights, *slots), before, strict=True):
        if array.size:
            array[~touched] = old[~touched]
    return touched


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@cases.examples
@given(shape=cases.shapes | wide_shapes)
def test_csr_step_is_the_dense_step_on_touched_rows(kernels, optimizer, shape):
    random = shape.random
    inputs = cases.csr_set(random, shape.fan_in)
    weights, _ = cases.weights_and_bias(random, shape.fan_in, shape.width)
    exact = [array.astype(float) for array in (weights, *cases.slots_for(optimizer.slots, weights))]
    arrays, memories = zip(*(guarded(each.astype(np.float32)) for each in exact), strict=True)
    scratch = kernels.module.csr_scratch(*weights.shape)
    for _ in range(2):  # the scratch is reusable
        rows = some_rows(random, shape.batch)
        grad = padded(random, shape.batch, shape.width)
        before = [array.copy() for array in arrays]
        for _ in range(2):
            step = optimizer.kind, HYPER, inputs, rows, grad
            kernels.csr_step(*step, scratch, Slots(*arrays[1:]), arrays[0])
            touched = step_densely(step[0], inputs, rows, grad, Slots(*exact[1:]), exact[0])
        for array, old in zip(arrays, before, strict=True):
            if array.size:
                assert_array_equal(array[~touched], old[~touched])
    for array, expected in zip(arrays, exact, strict=True):
        assert_allclose(array, expected, rtol=1e-4, atol=1e-4)
    assert not arrays[0][:, shape.width :].any() and all(map(unharmed, memories))


@pytest.mark.parametrize("width", WIDTHS)
def test_csr_step_adds_up_rows_of_any_length(kernels, width):
    random = np.random.default_rng(2)
    weights, _ = cases.weights_and_bias(random, 500, width)
    expected, scratch = weights.copy(), kernels.module.csr_scratch(*weights.shape)
    exact = HYPER._replace(l2=0.0)  # with which SGD is exact in float32
    for _ in range(2):  # with other touched rows
        inputs, rows = uneven_rows(random)
        grad = padded(random, len(rows), width)
        grad[3] = 0
        kernels.csr_step(SGD, exact, inputs, rows, grad, scratch, Slots(NONE, NONE), weights)
        NUMPY_KERNELS.csr_step(SGD, exact, inputs, rows, grad, None, Slots(NONE, NONE), expected)
    assert_array_equal(weights, expected)


@pairs(kernels=KERNELS, width=WIDTHS, name=list(OPTIMIZERS))
def test_rows_of_any_length_are_bounded_like_dense_ones(kernels, width, name):
    random, spec = np.random.default_rng(3), OPTIMIZERS[name]
    inputs, rows = uneven_rows(random)
    grad = padded(random, len(rows), width)
    before, expected, hyper = grad.copy(), grad.copy(), HYPER._replace(rate=1.0)
    x = cases.toarray(inputs, 400)[rows]
    kernels.csr_bound_rows(spec.kind, hyper, inputs, rows, grad)
    NUMPY_KERNELS.bound_rows(spec.kind, hyper, len(rows), x, expected)
    assert_allclose(grad, expected, rtol=1e-5)
    changed = (grad != before).any(axis=1)
    assert changed.any() == spec.bounded and not changed.all()


@pytest.mark.parametrize("rows", [[], [0, 5]], ids=["none", "empty"])
def test_a_batch_without_values_gives_the_bias_and_changes_nothing(kernels, rows):
    random, rows = np.random.default_rng(4), np.array(rows, np.int64)
    inputs, _ = uneven_rows(random)
    for width in WIDTHS:
        weights, bias = cases.weights_and_bias(random, 400, width)
        before, out = weights.copy(), junk(len(rows), weights.shape[1])
        kernels.csr_forward(inputs, rows, weights, bias, LINEAR, width, out)
        assert_array_equal(out, np.tile(bias, (len(rows), 1)))
        scratch = kernels.module.csr_scratch(*weights.shape)
        kernels.csr_step(SGD, HYPER, inputs, rows, out, scratch, Slots(NONE, NONE), weights)
        assert_array_equal(weights, before)


def test_a_feature_of_every_row_is_updated_once_with_the_sum(kernels):
    rows, adagrad = 300, OPTIMIZERS["adagrad"].kind
    inputs = csr_inputs(np.arange(rows + 1), np.full(rows, 2, np.int32), np.ones(rows, np.float32))
    weights, first = np.zeros((4, 32), np.float32), np.zeros((4, 32), np.float32)
    grad, numbers = np.ones((rows, 32), np.float32), np.arange(rows)
    hyper = HYPER._replace(rate=1.0, l2=0.0, epsilon=0.0)
    scratch = kernels.module.csr_scratch(*weights.shape)
    kernels.csr_step(adagrad, hyper, inputs, numbers, grad, scratch, Slots(first, NONE), weights)
    assert (first[2] == rows**2).all() and (weights[2] == -1).all()
    assert not np.delete(weights, 2, axis=0).any()
