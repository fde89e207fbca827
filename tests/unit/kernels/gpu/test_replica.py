"""The exchange of a replica, with numbers that float32 adds exactly."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.data.batch import csr_inputs
from hogbatch.store.layout import stored_width
from tests.support.kernel_backends import DEVICES
from tests.support.kernel_cases import csr_set, examples, junk, numbers, shapes, some_rows
from tests.support.pairs import pairs

FEATURES, WIDTH = 12, 16  # of wide layers, of which only touched rows are exchanged
BEYOND = 7  # value of cells that must not be written
FRACTIONS = [0.0, 0.25, 1.0]
SIZES = [0, 1, 255, 1000, 2_200_000]  # the last exceeds the size of a grid

sizes = pytest.mark.parametrize("size", SIZES)


def flat(seed, size):
    return numbers(np.random.default_rng(seed), size)


def flats(size):
    return flat(5, size), flat(6, size)


def finite():
    return np.ones(1, np.float32)


@sizes
def test_hand_over_keeps_the_change_and_pulls(device_kernels, size):
    pulled, params, base, seen = (flat(seed, size) for seed in range(4))
    change, ok = junk(size), finite()
    expected, before, by = pulled + (params - base), base + seen, params - base
    device_kernels.hand_over(pulled, params, base, seen, change, ok)
    assert_array_equal((params, base), (expected, expected))
    assert_array_equal((seen, change), (before, by))
    assert ok == 1


def test_drain_leaves_zeros(device_kernels):
    values, out = np.arange(3.0), np.full(3, np.nan)
    device_kernels.drain(values, out)
    assert_array_equal(out, [0, 1, 2])
    assert not values.any()


@pairs(device_kernels=DEVICES, size=SIZES, fraction=FRACTIONS, scale=[0.0, 2.0], start=[0, 1])
def test_add_adds_less_where_others_have_changed_more(device_kernels, size, fraction, scale, start):
    seen, change, shared = flat(1, size), flat(2, size), flat(3, size + start)
    damping = scale / (scale + abs(shared[start:] - seen)) if scale else 1.0
    added, before, pulled = fraction * change * damping, change.copy(), junk(size)
    expected, left = shared[start:] + added, added - change
    device_kernels.add(fraction, scale, seen, change, shared[start:], pulled)
    assert_allclose(shared[start:], expected, rtol=1e-6, atol=1e-5)
    assert_array_equal(pulled, shared[start:])
    assert_allclose(seen, left, rtol=1e-5, atol=1e-5)
    assert_array_equal(change, before)


WRONG = {"nan": (np.nan, 0), "inf": (np.inf, 0), "-inf": (0, -np.inf), "both": (3e38, -3e38)}


@pairs(device_kernels=DEVICES, wrong=WRONG, where=[0, 699])
def test_a_change_that_is_not_finite_is_detected(device_kernels, wrong, where):
    pulled, params, base = np.zeros(700, np.float32), flat(1, 700), flat(2, 700)
    params[where], base[where] = wrong
    device_kernels.hand_over(pulled, params, base, *flats(700), ok := finite())
    assert ok == 0
    device_kernels.hand_over(pulled, flat(3, 700), flat(4, 700), *flats(700), ok)
    assert ok == 0  # and stays 0 when the next part is finite


@pairs(device_kernels=DEVICES, wrong=WRONG, row=[4, 9])
def test_a_touched_row_that_is_not_finite_is_detected(device_kernels, wrong, row):
    layer, seen = Layer.of(seed=1, touched=[5, 0, 9]), finite()
    layer.params[row, WIDTH - 1], layer.base[row, WIDTH - 1] = wrong
    device_kernels.take_rows(*layer.rows, layer.params, layer.base, layer.change, seen)
    assert seen == (row == 4)  # which is not touched


class Layer(NamedTuple):
    """Three copies of the weights of a wide layer, and its touched rows."""

    touched: list[int]
    rows: tuple[np.ndarray, np.ndarray]  # `touched` and `found` as set by find_rows
    params: np.ndarray
    base: np.ndarray
    shared: np.ndarray
    change: np.ndarray

    @classmethod
    def of(cls, seed, touched, shape=(FEATURES, WIDTH)):
        random, features = np.random.default_rng(seed), shape[0]
        room = np.full(features, features + 1000, np.int32)  # not read after the found ones
        room[: len(touched)] = touched
        rows = room, np.array([len(touched)], np.int32)
        weights = (numbers(random, *shape) for _ in range(3))
        return cls(touched, rows, *weights, np.full(shape, BEYOND, np.float32))


# In each shape, some threads of a GPU with few multiprocessors process more than one row.
SHAPES = [(9001, 1), (5003, 2), (1101, 8), (603, 16), (150, 48), (71, 512)]
CASES = [[5, 0, 9], [], list(range(FEATURES)), *SHAPES]


def layer_of(case):
    """A layer with these touched rows, or with most rows touched and this shape."""
    if isinstance(case, list):
        return Layer.of(seed=3, touched=case)
    touched = np.random.default_rng(4).permutation(case[0])[: case[0] - 3]
    return Layer.of(seed=3, touched=touched.tolist(), shape=case)


@pytest.fixture(params=CASES, ids=str)
def layer(request):
    return layer_of(request.param)


def test_take_rows_packs_the_change_of_the_touched_rows(device_kernels, layer):
    params, base, seen = layer.params.copy(), layer.base.copy(), finite()
    device_kernels.take_rows(*layer.rows, layer.params, layer.base, layer.change, seen)
    count = len(layer.touched)
    assert_array_equal(layer.change[:count], (params - base)[layer.touched])
    assert (layer.change[count:] == BEYOND).all()
    base[layer.touched] = params[layer.touched]
    assert_array_equal(layer.base, base)
    assert_array_equal(layer.params, params)
    assert seen == 1


def test_rejoin_rows_pulls_only_the_touched_rows(device_kernels, layer):
    params, base, shared = layer.params.copy(), layer.base.copy(), layer.shared.copy()
    device_kernels.rejoin_rows(*layer.rows, layer.shared, layer.params, layer.base)
    params[layer.touched] += (shared - base)[layer.touched]
    base[layer.touched] = shared[layer.touched]
    assert_array_equal(layer.params, params)
    assert_array_equal(layer.base, base)
    assert_array_equal(layer.shared, shared)


@pairs(device_kernels=DEVICES, case=CASES, fraction=FRACTIONS)
def test_add_rows_adds_only_to_the_touched_rows(device_kernels, case, fraction):
    layer = layer_of(case)
    shared, change = layer.shared.copy(), numbers(np.random.default_rng(8), *layer.shared.shape)
    expected_change = change.copy()
    device_kernels.add_rows(fraction, *layer.rows, change, layer.shared)
    shared[layer.touched] += fraction * change[: len(layer.touched)]
    assert_array_equal(layer.shared, shared)
    assert_array_equal(change, expected_change)


@pytest.mark.gpu
@pytest.mark.parametrize("operation", ["add", "add_rows"])
def test_a_merge_leaves_almost_all_multiprocessors_to_training(
    backend_named, monkeypatch, operation
):
    backend, launched = backend_named("gpu"), []
    from hogbatch.kernels.gpu import operations

    monkeypatch.setattr(
        operations, "kernel", lambda source, name: lambda grid, *_: launched.append(grid)
    )
    if operation == "add":
        backend.add(1.0, 0.0, *(junk(200_000) for _ in range(4)))
    else:
        layer = layer_of((603, 16))
        backend.add_rows(1.0, *layer.rows, layer.change, layer.shared)
    (grid,) = launched
    assert np.prod(grid) <= 4


class Finding:
    """The arrays of `find_rows` over a set of `features`, used for successive calls."""

    def __init__(self, kernels, features):
        self.kernels = kernels
        self.head = np.full(features, -1, np.int32)
        self.touched = np.full(features, -5, np.int32)
        self.found = np.array([99], np.int32)

    def find(self, inputs, rows):
        self.kernels.find_rows(inputs, rows, self.head, self.touched, self.found)
        return self.touched[: self.found[0]].tolist()


@examples
@given(shape=shapes)
def test_find_rows_lists_each_feature_of_the_batch_once(device_kernels, shape):
    random, features = shape.random, stored_width(shape.fan_in)
    inputs = csr_set(random, shape.fan_in)
    finding = Finding(device_kernels, features)
    for _ in range(2):  # the second call starts from scratch
        rows = some_rows(random, shape.batch)
        stored = [inputs.indices[inputs.indptr[row] : inputs.indptr[row + 1]] for row in rows]
        assert sorted(finding.find(inputs, rows)) == np.unique(np.concatenate(stored)).tolist()
        assert (finding.head == -1).all()


def test_every_feature_of_long_rows_is_found_once(device_kernels):
    random, features = np.random.default_rng(2), 20_001
    counts = 0, 33, 15_000, 9_000
    stored = [np.sort(random.choice(features, count, replace=False)) for count in counts]
    indptr = np.cumsum([0, *map(len, stored)])
    indices = np.concatenate(stored).astype(np.int32)
    inputs = csr_inputs(indptr, indices, np.ones(len(indices), np.float32))
    finding = Finding(device_kernels, features)
    for rows in ([0, 1, 2, 3, 2], [3], [1]):
        expected = np.unique(np.concatenate([stored[row] for row in rows]))
        assert sorted(finding.find(inputs, np.array(rows))) == expected.tolist()
        assert (finding.head == -1).all()


def test_a_feature_of_every_row_is_found_once(device_kernels):
    rows = 700
    inputs = csr_inputs(np.arange(rows + 1), np.full(rows, 2, np.int32), np.ones(rows, np.float32))
    finding = Finding(device_kernels, 4)
    assert finding.find(inputs, np.arange(rows)) == [2]
    assert finding.find(inputs, np.arange(0)) == []
