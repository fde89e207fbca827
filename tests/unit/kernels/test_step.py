import numpy as np
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.kernels.contract import FURTHEST, OPTIMIZERS as KINDS
from hogbatch.kernels.cpu.rules import RULES
from tests.support import kernel_cases as cases
from tests.support.kernel_backends import DEVICES, KERNELS
from tests.support.kernel_cases import HYPER, padded
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
    return w - h.rate * (state["m"] / (np.sqrt(state["v"]) + h.epsilon) + h.l2 * w)


FORMULAS = {formula.__name__: formula for formula in (sgd, momentum, adagrad, adam)}


def test_every_optimizer_has_a_formula_and_a_rule():
    assert set(FORMULAS) == set(OPTIMIZERS)
    assert set(RULES) == set(KINDS.values())


@pairs(kernels=KERNELS, optimizer=OPTIMIZERS, l2=[0.0, HYPER.l2])
@cases.examples
@given(shape=cases.shapes)
def test_steps_follow_the_formula(kernels, optimizer, l2, shape):
    random, hyper = shape.random, HYPER._replace(l2=l2)
    weights, _ = cases.weights_and_bias(random, shape.fan_in, shape.width)
    slots, state = cases.slots_for(optimizer.slots, weights), {}
    expected = weights.astype(float)
    for _ in range(5):
        gradient = padded(random, shape.fan_in, shape.width, len(weights))
        kernels.step(optimizer.kind, hyper, gradient, slots, weights)
        g = gradient if optimizer.decoupled else gradient + l2 * expected
        expected = FORMULAS[optimizer.name](hyper, g, expected, state)
    assert_allclose(weights, expected, rtol=1e-4, atol=1e-4)
    assert not weights[shape.fan_in :].any() and not weights[:, shape.width :].any()


@pairs(kernels=KERNELS, optimizer=OPTIMIZERS, rate=[0.25, 30.0], others=[0, 3])
@cases.examples
@given(shape=cases.shapes)
def test_a_row_never_moves_its_own_outputs_further_than_the_bound(
    kernels, optimizer, rate, others, shape
):
    """The batch has these and `others` more rows."""
    random, hyper, batch = shape.random, HYPER._replace(rate=rate), shape.batch + others
    x, grad = padded(random, shape.batch, shape.fan_in), padded(random, shape.batch, shape.width)
    expected = grad.astype(float)
    if optimizer.bounded:
        rate = rate / (1 - hyper.momentum) if optimizer.velocity else rate
        moved = np.maximum(rate / batch * np.square(x.astype(float)).sum(axis=1), 1e-30)
        expected *= np.minimum(1, FURTHEST / moved)[:, None]
    kernels.bound_rows(optimizer.kind, hyper, batch, x, grad)
    assert_allclose(grad, expected, rtol=1e-5)


@pairs(device_kernels=DEVICES, optimizer=OPTIMIZERS, layers=[1, 3, 40])
def test_layers_are_bounded_together_as_one_by_one(device_kernels, optimizer, layers):
    random, hyper = np.random.default_rng(layers), HYPER._replace(rate=30.0)
    widths = random.integers(1, 70, layers + 1).tolist()
    x = tuple(padded(random, 5, width) for width in widths[:-1])
    grads = tuple(padded(random, 5, width) for width in widths[1:])
    expected = [grad.copy() for grad in grads]
    for inputs, grad in zip(x, expected, strict=True):
        device_kernels.bound_rows(optimizer.kind, hyper, 7, inputs, grad)
    device_kernels.bound_layers(optimizer.kind, hyper, 7, x, grads)
    for grad, exact in zip(grads, expected, strict=True):
        assert_array_equal(grad, exact)


@pairs(kernels=KERNELS, name=list(OPTIMIZERS), bad=[1e15, -3e38, np.inf, -np.inf, np.nan])
def test_adaptive_optimizers_ignore_a_gradient_that_would_overflow_their_slots(kernels, name, bad):
    optimizer, results = OPTIMIZERS[name], []
    for value in (bad, 0):
        random = np.random.default_rng(4)
        weights, _ = cases.weights_and_bias(random, 5, 20)
        slots = cases.slots_for(optimizer.slots, weights)
        for last in (1, value):
            gradient = padded(random, 5, 20, len(weights))
            gradient[3, 17] = last
            kernels.step(optimizer.kind, HYPER, gradient, slots, weights)
        results.append((weights, *slots))
    if optimizer.adaptive:
        for with_bad, without in zip(*results, strict=True):
            assert_array_equal(with_bad, without)
    else:
        assert not abs(results[0][0][3, 17] - results[1][0][3, 17]) < 1e10


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
        inputs = cases.csr_set(random, features)
        weights, _ = cases.weights_and_bias(random, features, width)
        slots = cases.slots_for(OPTIMIZERS[name].slots, weights)
        grad = padded(random, 4, width)
        grad[:, :width] = 1 + np.abs(grad[:, :width])
        scratch = kernels.module.csr_scratch(*weights.shape)
        kernels.csr_step(kind, HYPER, inputs, rows, grad, scratch, slots, weights)
        inputs.values[inputs.indptr[1]] = value  # the only occurrence of its feature in these rows
        kernels.csr_step(kind, HYPER, inputs, rows, grad, scratch, slots, weights)
        results.append((weights, *slots))
    for with_bad, without in zip(*results, strict=True):
        assert_array_equal(with_bad, without)
