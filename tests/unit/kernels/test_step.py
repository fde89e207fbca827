import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.kernels import reference
from hogbatch.kernels.contract import FURTHEST, OPTIMIZERS as KINDS
from hogbatch.kernels.cpu.rules import RULES
from tests.support.kernel_backends import KERNELS
from tests.support.kernel_cases import (
    HYPER,
    csr_set,
    examples,
    overflowing,
    padded,
    shapes,
    slots_for,
    some_rows,
    toarray,
    weights_and_bias,
)
from tests.support.pairs import pairs


def sgd(h, g, w, state):
    return w - h.rate * g


def momentum(h, g, w, state):
    state["m"] = h.momentum * state.get("m", 0) + g
    return w - h.rate * state["m"]


def adagrad(h, g, w, state):
    state["s"] = state.get("s", 0) + g**2
    return w - h.rate * g / (np.sqrt(state["s"]) + h.epsilon)


def adam(h, g, w, state):
    state["m"] = h.momentum * state.get("m", 0) + (1 - h.momentum) * g
    state["v"] = h.beta2 * state.get("v", 0) + (1 - h.beta2) * g**2
    return w - h.rate * state["m"] / (np.sqrt(state["v"]) + h.epsilon)


FORMULAS = {formula.__name__: formula for formula in (sgd, momentum, adagrad, adam)}


def test_every_optimizer_has_a_formula_and_a_rule():
    assert set(FORMULAS) == set(OPTIMIZERS)
    assert set(RULES) == set(KINDS.values())


@pairs(kernels=KERNELS, optimizer=OPTIMIZERS, l2=[0.0, HYPER.l2])
@examples
@given(shape=shapes)
def test_steps_follow_the_formula(kernels, optimizer, l2, shape):
    random, hyper = shape.random, HYPER._replace(l2=l2)
    weights, _ = weights_and_bias(random, shape.fan_in, shape.width)
    slots, state, expected = slots_for(optimizer.slots, weights), {}, weights.astype(float)
    for _ in range(5):
        gradient = padded(random, shape.fan_in, shape.width, len(weights))
        kernels.step(optimizer.kind, hyper, gradient, slots, weights)
        expected = FORMULAS[optimizer.name](hyper, gradient + l2 * expected, expected, state)
    assert_allclose(weights, expected, rtol=1e-4, atol=1e-4)
    assert not weights[shape.fan_in :].any() and not weights[:, shape.width :].any()


def bounded(hyper, velocity, squares, grad):
    rate = hyper.rate / (1 - hyper.momentum) if velocity else hyper.rate
    moved = np.maximum(rate / len(grad) * squares, 1e-30)
    return grad * np.minimum(1, FURTHEST / moved)[:, None]


@pairs(kernels=KERNELS, optimizer=OPTIMIZERS, rate=[0.25, 30.0])
@examples
@given(shape=shapes)
def test_a_row_never_moves_its_own_outputs_further_than_the_bound(kernels, optimizer, rate, shape):
    random, hyper = shape.random, HYPER._replace(rate=rate)
    x, grad = padded(random, shape.batch, shape.fan_in), padded(random, shape.batch, shape.width)
    expected = grad.copy()
    if optimizer.bounded:
        squares = np.square(x.astype(float)).sum(axis=1)
        expected = bounded(hyper, optimizer.velocity, squares, grad.astype(float))
    kernels.bound_rows(optimizer.kind, hyper, len(grad), x, grad)
    assert_allclose(grad, expected, rtol=1e-5)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@examples
@given(shape=shapes)
def test_some_rows_of_a_batch_are_bounded_as_among_all(kernels, optimizer, shape):
    random, hyper = shape.random, HYPER._replace(rate=30.0)
    x, grad = padded(random, shape.batch, shape.fan_in), padded(random, shape.batch, shape.width)
    alone, some = grad.copy(), slice(shape.batch // 2, None)
    kernels.bound_rows(optimizer.kind, hyper, shape.batch, x, grad)
    part = np.ascontiguousarray(alone[some])
    kernels.bound_rows(optimizer.kind, hyper, shape.batch, np.ascontiguousarray(x[some]), part)
    assert_allclose(part, grad[some], rtol=1e-6)


@pairs(kernels=KERNELS, optimizer=OPTIMIZERS, layers=[1, 3, 40])
def test_layers_are_bounded_together_as_one_by_one(kernels, optimizer, layers):
    random, hyper = np.random.default_rng(layers), HYPER._replace(rate=30.0)
    widths = random.integers(1, 70, layers + 1).tolist()
    x = tuple(padded(random, 5, width) for width in widths[:-1])
    grads = tuple(padded(random, 5, width) for width in widths[1:])
    expected = [grad.copy() for grad in grads]
    for inputs, grad in zip(x, expected, strict=True):
        kernels.bound_rows(optimizer.kind, hyper, 7, inputs, grad)
    kernels.bound_layers(optimizer.kind, hyper, 7, x, grads)
    for grad, exact in zip(grads, expected, strict=True):
        assert_array_equal(grad, exact)


@pytest.mark.parametrize("name", OPTIMIZERS)
@examples
@given(shape=shapes)
def test_sparse_rows_are_bounded_like_dense_ones(kernels, name, shape):
    random, hyper = shape.random, HYPER._replace(rate=30.0)
    inputs, rows = csr_set(random, shape.fan_in), some_rows(random, shape.batch)
    grad = padded(random, shape.batch, shape.width)
    expected = grad.copy()
    written = toarray(inputs, shape.fan_in)[rows]
    reference.bound_rows(OPTIMIZERS[name].kind, hyper, len(rows), written, expected)
    kernels.csr_bound_rows(OPTIMIZERS[name].kind, hyper, inputs, rows, grad)
    assert_allclose(grad, expected, rtol=1e-5)


@overflowing
@pairs(kernels=KERNELS, name=list(OPTIMIZERS), bad=[1e15, -3e38, np.inf, -np.inf, np.nan])
def test_adaptive_optimizers_ignore_a_gradient_that_would_overflow_their_slots(kernels, name, bad):
    (weights, slots), (others, other_slots) = (stepped_once(kernels, name) for _ in range(2))
    gradient = padded(np.random.default_rng(6), 5, 20, len(weights))
    gradient[3, 17], without = bad, gradient.copy()
    without[3, 17] = 0
    kernels.step(OPTIMIZERS[name].kind, HYPER, gradient, slots, weights)
    kernels.step(OPTIMIZERS[name].kind, HYPER, without, other_slots, others)
    if OPTIMIZERS[name].adaptive:
        assert_array_equal(weights, others)
        assert_array_equal(slots.first, other_slots.first)
        assert_array_equal(slots.second, other_slots.second)
    else:
        assert not abs(weights[3, 17] - others[3, 17]) < 1e10


def stepped_once(kernels, name):
    """Weights [5, 20] and slots after one step."""
    random = np.random.default_rng(4)
    weights, _ = weights_and_bias(random, 5, 20)
    slots = slots_for(OPTIMIZERS[name].slots, weights)
    gradient = padded(random, 5, 20, len(weights))
    kernels.step(OPTIMIZERS[name].kind, HYPER, gradient, slots, weights)
    return weights, slots


@overflowing
@pairs(
    kernels=KERNELS,
    name=[name for name, spec in OPTIMIZERS.items() if spec.adaptive],
    width=[1, 4, 20],
    bad=[1e15, -3e38],
)
def test_so_does_the_step_on_touched_rows(kernels, name, width, bad):
    kind, features, rows, results = OPTIMIZERS[name].kind, 9, np.arange(4), []
    for value in (bad, 0):
        random = np.random.default_rng(4)
        inputs, (weights, _) = csr_set(random, features), weights_and_bias(random, features, width)
        slots, grad = slots_for(OPTIMIZERS[name].slots, weights), padded(random, 4, width)
        grad[:, :width] = 1 + np.abs(grad[:, :width])
        scratch = kernels.module.csr_scratch(*weights.shape)
        kernels.csr_step(kind, HYPER, inputs, rows, grad, scratch, slots, weights)
        inputs.values[inputs.indptr[1]] = value  # the only occurrence of its feature in these rows
        kernels.csr_step(kind, HYPER, inputs, rows, grad, scratch, slots, weights)
        results.append((weights, *slots))
    for with_bad, without in zip(*results, strict=True):
        assert_array_equal(with_bad, without)
