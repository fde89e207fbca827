import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.data.batch import csr_inputs
from hogbatch.kernels import reference
from hogbatch.kernels.contract import ACTIVATIONS, LINEAR, MOMENTUM, RELU, SGD, Links, Slots
from hogbatch.kernels.cpu import sparse
from hogbatch.store.layout import stored_width
from tests.support.kernel_backends import KERNELS
from tests.support.kernel_cases import (
    HYPER,
    NO_MASK,
    NONE,
    Shape,
    csr_set,
    examples,
    junk,
    numbers,
    padded,
    shapes,
    slots_for,
    some_rows,
    toarray,
    weights_and_bias,
)
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
    inputs = csr_inputs(indptr, indices, numbers(random, len(indices)))
    return inputs, some_rows(random, 37, of=len(counts))


def scratch_for(kernels, weights):
    return kernels.module.csr_scratch(*weights.shape)


@examples
@given(shape=shapes)
def test_csr_forward_is_the_dense_layer(kernels, shape):
    random = shape.random
    inputs, rows = csr_set(random, shape.fan_in), some_rows(random, shape.batch)
    weights, bias = weights_and_bias(random, shape.fan_in, shape.width)
    x = toarray(inputs, len(weights))[rows]
    for activation in ACTIVATIONS.values():
        out, expected = junk(shape.batch, weights.shape[1]), junk(shape.batch, weights.shape[1])
        kernels.csr_forward(inputs, rows, weights, bias, activation, shape.width, out)
        reference.dense_forward(x, weights, bias, activation, shape.width, NO_MASK, expected)
        assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
        assert not out[:, shape.width :].any()


@pytest.mark.parametrize("width", WIDTHS)
def test_csr_forward_adds_up_rows_of_any_length(kernels, width):
    random, real = np.random.default_rng(1), max(1, width - 3)
    inputs, rows = uneven_rows(random)
    weights, bias = weights_and_bias(random, 400, real)
    out, expected = junk(len(rows), weights.shape[1]), junk(len(rows), weights.shape[1])
    kernels.csr_forward(inputs, rows, weights, bias, RELU, real, out)
    reference.csr_forward(inputs, rows, weights, bias, RELU, real, expected)
    assert_array_equal(out, expected)


@examples
@given(shape=shapes)
def test_gather_converts_sparse_rows_to_dense(kernels, shape):
    random = shape.random
    inputs, rows = csr_set(random, shape.fan_in), some_rows(random, shape.batch)
    out = junk(shape.batch, stored_width(shape.fan_in))
    kernels.gather(inputs, rows, out)
    assert_array_equal(out, toarray(inputs, out.shape[1])[rows])


def test_gather_adds_up_a_feature_that_occurs_twice_in_a_row(kernels):
    inputs = csr_inputs(np.array([0, 3]), np.array([1, 0, 1], np.int32), np.float32([2, 3, 4]))
    out = junk(2, 4)
    kernels.gather(inputs, np.array([0, 0]), out)
    assert_array_equal(out, [[3, 6, 0, 0]] * 2)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@examples
@given(shape=shapes)
def test_csr_step_is_the_dense_step_on_touched_rows(kernels, optimizer, shape):
    random = shape.random
    inputs = csr_set(random, shape.fan_in)
    weights, _ = weights_and_bias(random, shape.fan_in, shape.width)
    slots = slots_for(optimizer.slots, weights)
    expected = weights.astype(float)
    expected_slots = Slots(*(slot.astype(float) for slot in slots))
    for _ in range(3):
        rows = some_rows(random, shape.batch)
        grad = padded(random, shape.batch, shape.width)
        before = [array.copy() for array in (weights, *slots)]
        scratch = scratch_for(kernels, weights)
        for _ in range(2):  # the scratch is reusable
            kernels.csr_step(optimizer.kind, HYPER, inputs, rows, grad, scratch, slots, weights)
            step_densely(optimizer.kind, inputs, rows, grad, expected_slots, expected)
        touched = touched_by(inputs, rows, len(weights))
        for array, old in zip((weights, *slots), before, strict=True):
            if array.size:
                assert_array_equal(array[~touched], old[~touched])
    for array, exact in zip((weights, *slots), (expected, *expected_slots), strict=True):
        assert_allclose(array, exact, rtol=1e-4, atol=1e-4)
    assert not weights[:, shape.width :].any()


@pytest.mark.parametrize("width", WIDTHS)
def test_csr_step_adds_up_rows_of_any_length(kernels, width):
    random = np.random.default_rng(2)
    weights, _ = weights_and_bias(random, 500, width)
    expected, scratch = weights.copy(), scratch_for(kernels, weights)
    exact = HYPER._replace(l2=0.0)  # with which SGD is exact in float32
    for _ in range(2):  # with other touched rows
        inputs, rows = uneven_rows(random)
        grad = padded(random, len(rows), width)
        grad[3] = 0
        kernels.csr_step(SGD, exact, inputs, rows, grad, scratch, Slots(NONE, NONE), weights)
        reference.csr_step(SGD, exact, inputs, rows, grad, None, Slots(NONE, NONE), expected)
    assert_array_equal(weights, expected)


@pairs(kernels=KERNELS, width=WIDTHS, momentum=[0.0, 0.5])
def test_rows_of_any_length_are_bounded(kernels, width, momentum):
    random = np.random.default_rng(3)
    inputs, rows = uneven_rows(random)
    grad = padded(random, len(rows), width)
    before, expected = grad.copy(), grad.copy()
    hyper = HYPER._replace(rate=1.0, momentum=momentum)
    kernels.csr_bound_rows(MOMENTUM, hyper, inputs, rows, grad)
    reference.csr_bound_rows(MOMENTUM, hyper, inputs, rows, expected)
    assert_allclose(grad, expected, rtol=1e-5)
    bounded = (grad != before).any(axis=1)
    assert bounded.any() and not bounded.all()


def test_a_batch_without_rows_changes_nothing(kernels):
    random = np.random.default_rng(4)
    (inputs, _), rows = uneven_rows(random), np.empty(0, np.int64)
    for width in WIDTHS:
        weights, bias = weights_and_bias(random, 400, width)
        before, out = weights.copy(), junk(0, weights.shape[1])
        kernels.csr_forward(inputs, rows, weights, bias, LINEAR, width, out)
        scratch = scratch_for(kernels, weights)
        kernels.csr_step(SGD, HYPER, inputs, rows, out, scratch, Slots(NONE, NONE), weights)
        assert_array_equal(weights, before)


def step_densely(kind, inputs, rows, grad, slots, weights):
    """Update all rows, and restore those that the batch did not touch."""
    x = toarray(inputs, len(weights))[rows].astype(float)
    touched = touched_by(inputs, rows, len(weights))
    before = [array.copy() for array in (weights, *slots)]
    reference.step(kind, HYPER, x.T @ grad, slots, weights)
    for array, old in zip((weights, *slots), before, strict=True):
        if array.size:
            array[~touched] = old[~touched]


def touched_by(inputs, rows, features):
    """Which features occur in `rows`, as a mask."""
    ones = csr_inputs(inputs.indptr, inputs.indices, np.ones_like(inputs.values))
    return toarray(ones, features)[rows].any(axis=0)


def test_a_feature_of_several_rows_is_updated_once_with_the_sum(kernels):
    inputs = csr_inputs(
        np.array([0, 1, 2], np.int64), np.array([1, 1], np.int32), np.array([1, 2], np.float32)
    )
    rows = np.array([0, 1, 1], np.int64)
    weights, first = np.zeros((4, 1), np.float32), np.zeros((4, 1), np.float32)
    grad = np.array([[1], [10], [100]], np.float32)
    hyper = HYPER._replace(rate=1.0, l2=0.0, epsilon=0.0)
    adagrad = OPTIMIZERS["adagrad"].kind
    scratch = scratch_for(kernels, weights)
    kernels.csr_step(adagrad, hyper, inputs, rows, grad, scratch, Slots(first, NONE), weights)
    assert first[:, 0].tolist() == [0, 221**2, 0, 0]
    assert weights[:, 0].tolist() == [0, -1, 0, 0]


def test_a_batch_of_empty_rows_gives_the_bias_and_changes_nothing(kernels):
    inputs = csr_inputs(np.zeros(4, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
    rows = np.array([2, 0], np.int64)
    weights = np.ones((8, stored_width(3)), np.float32)
    out = junk(2, weights.shape[1])
    bias = np.arange(4, dtype=np.float32)
    kernels.csr_forward(inputs, rows, weights, bias, LINEAR, 4, out)
    assert out.tolist() == [[0, 1, 2, 3]] * 2
    scratch = scratch_for(kernels, weights)
    kernels.csr_step(SGD, HYPER, inputs, rows, out, scratch, Slots(NONE, NONE), weights)
    assert (weights == 1).all()


@examples
@given(shape=shapes | wide_shapes, floor=st.sampled_from([0.0, -np.inf]))
def test_a_floor_is_applied_to_every_score_within_bounds(shape, floor):
    random = shape.random
    inputs, rows = csr_set(random, shape.fan_in), some_rows(random, shape.batch)
    weights, bias = weights_and_bias(random, shape.fan_in, shape.width)
    out, memory = guarded(junk(shape.batch, weights.shape[1]))
    sparse.csr_forward_above(inputs, rows, weights, bias, floor, out)
    x = toarray(inputs, len(weights))[rows].astype(float)
    assert_allclose(out, np.maximum(floor, x @ weights + bias), rtol=1e-5)
    assert unharmed(memory)


def test_a_nan_score_stays_nan_with_a_floor():
    inputs = csr_inputs(np.array([0, 1]), np.array([1], np.int32), np.array([1], np.float32))
    weights = np.zeros((2, 16), np.float32)
    weights[1, 3] = np.nan
    out = junk(1, 16)
    sparse.csr_forward_above(
        inputs, np.zeros(1, np.int64), weights, np.zeros(16, np.float32), 0.0, out
    )
    assert_array_equal(np.flatnonzero(np.isnan(out)), [3])


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@examples
@given(shape=shapes | wide_shapes)
def test_csr_step_writes_only_within_its_arrays(optimizer, shape):
    random = shape.random
    inputs, rows = csr_set(random, shape.fan_in), some_rows(random, shape.batch)
    grad = padded(random, shape.batch, shape.width)
    weights, _ = weights_and_bias(random, shape.fan_in, shape.width)
    slots = slots_for(optimizer.slots, weights)
    expected, expected_slots = weights.astype(float), [slot.astype(float) for slot in slots]
    step_densely(optimizer.kind, inputs, rows, grad, Slots(*expected_slots), expected)

    arrays, memories = zip(*map(guarded, (weights, *slots)), strict=True)
    stored = max(1, int((inputs.indptr[rows + 1] - inputs.indptr[rows]).sum()))
    sizes = len(weights), stored, stored, stored
    parts, others = zip(*(guarded(np.full(size, -1, np.int32)) for size in sizes), strict=True)
    sparse.step_linked(
        optimizer.kind, HYPER, inputs, rows, grad, Links(*parts), Slots(*arrays[1:]), arrays[0]
    )
    for array, exact in zip(arrays, (expected, *expected_slots), strict=True):
        assert_allclose(array, exact, rtol=1e-4, atol=1e-4)
    assert all(map(unharmed, memories + others))
    assert (parts[0] == -1).all()


def test_a_feature_of_every_row_is_updated_once(kernels):
    rows = 300
    inputs = csr_inputs(np.arange(rows + 1), np.full(rows, 2, np.int32), np.ones(rows, np.float32))
    weights, first = np.zeros((4, 32), np.float32), np.zeros((4, 32), np.float32)
    grad = np.ones((rows, 32), np.float32)
    hyper = HYPER._replace(rate=1.0, l2=0.0, epsilon=0.0)
    scratch = scratch_for(kernels, weights)
    adagrad = OPTIMIZERS["adagrad"].kind
    kernels.csr_step(
        adagrad, hyper, inputs, np.arange(rows), grad, scratch, Slots(first, NONE), weights
    )
    assert (first[2] == rows**2).all() and (weights[2] == -1).all()
    assert not np.delete(weights, 2, axis=0).any()
