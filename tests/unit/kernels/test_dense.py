import numpy as np
import pytest
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.kernels.contract import (
    ACTIVATIONS,
    LINEAR,
    RELU,
    SELU,
    SIGMOID,
    SKIPPED,
    TANH,
    TOTALS,
)
from hogbatch.store.layout import stored_width
from tests.support import kernel_cases as cases, plain_sgd
from tests.support.kernel_backends import DEVICES
from tests.support.kernel_cases import examples, junk, padded, shapes
from tests.support.pairs import pairs

SLOPES = {
    LINEAR: lambda z: np.ones_like(z),
    RELU: lambda z: (z > 0).astype(float),
    SIGMOID: lambda z: 1 / (2 + np.exp(z) + np.exp(-z)),
    TANH: lambda z: 1 / np.cosh(z) ** 2,
    SELU: lambda z: np.where(z > 0, plain_sgd.SLOPE, plain_sgd.LIMIT * np.exp(np.minimum(z, 0))),
}
VALUES = {LINEAR: lambda z: z} | {
    ACTIVATIONS[name]: value for name, (value, _) in plain_sgd.ACTIVATIONS.items()
}
activations = pytest.mark.parametrize("kind", ACTIVATIONS.values(), ids=ACTIVATIONS)


@examples
@given(shape=shapes)
def test_gather_copies_rows_and_pads_with_zeros(kernels, shape):
    random = shape.random
    inputs, rows = cases.dense_set(random, shape.fan_in), cases.some_rows(random, shape.batch)
    inputs.dense[np.setdiff1d(np.arange(len(inputs.dense)), rows)] = np.nan  # is not read
    out = junk(shape.batch, stored_width(shape.fan_in))
    kernels.gather(inputs, rows, out)
    assert_array_equal(out[:, : shape.fan_in], inputs.dense[rows])
    assert not out[:, shape.fan_in :].any()


@examples
@given(shape=shapes)
def test_gather_adds_up_the_values_of_sparse_rows(device_kernels, shape):
    random = shape.random
    inputs, rows = cases.csr_set(random, shape.fan_in), cases.some_rows(random, shape.batch)
    inputs.indices[: shape.seed % 3] = 0  # features may occur twice in a row
    out = junk(shape.batch, stored_width(shape.fan_in))
    device_kernels.gather(inputs, rows, out)
    assert_array_equal(out, cases.toarray(inputs, out.shape[1])[rows])


@activations
@examples
@given(shape=shapes)
def test_dense_forward_applies_the_activation_and_clears_the_padding(kernels, kind, shape):
    random = shape.random
    x = padded(random, shape.batch, shape.fan_in)
    weights, bias = cases.weights_and_bias(random, shape.fan_in, shape.width)
    out = junk(shape.batch, weights.shape[1])
    kernels.dense_forward(x / 16, weights, bias, kind, shape.width, out)
    z = (x.astype(float) / 16 @ weights + bias)[:, : shape.width]
    assert_allclose(out[:, : shape.width], VALUES[kind](z), rtol=1e-4, atol=1e-35)
    assert not out[:, shape.width :].any()


@activations
@examples
@given(shape=shapes)
def test_dense_backward_is_the_gradient_of_the_layer_below(kernels, kind, shape):
    random, below = shape.random, shape.width % 13 + 1
    x = padded(random, shape.batch, below)
    lower = cases.weights_and_bias(random, below, shape.fan_in)
    activated = junk(shape.batch, lower[0].shape[1])
    kernels.dense_forward(x / 16, *lower, kind, shape.fan_in, activated)
    grad = padded(random, shape.batch, shape.width)
    weights, _ = cases.weights_and_bias(random, shape.fan_in, shape.width)
    out = junk(shape.batch, len(weights))
    kernels.dense_backward(grad, weights, kind, activated, out)
    slopes = SLOPES[kind]((x.astype(float) / 16) @ lower[0] + lower[1])
    assert_allclose(out, (grad.astype(float) @ weights.T) * slopes, rtol=1e-3, atol=1e-4)
    assert not out[:, shape.fan_in :].any()


@examples
@given(shape=shapes)
def test_the_weight_gradient_is_transposed_x_times_gradient(kernels, shape):
    random = shape.random
    x, grad = (padded(random, shape.batch, width) for width in (shape.fan_in, shape.width))
    for bias in (junk(grad.shape[1]), np.empty(0, np.float32)):
        out = junk(x.shape[1], grad.shape[1])
        kernels.weight_gradient(x, grad, out, bias)
        assert_allclose(out, x.astype(float).T @ grad, rtol=1e-5)
        assert not out[shape.fan_in :].any() and not out[:, shape.width :].any()
        if bias.size:
            assert_array_equal(bias, grad.sum(axis=0))


@pairs(
    device_kernels=DEVICES,
    width=[1, 2, 8, 16, 48, 512],
    batch=[0, 1, 31, 129, 1031, 20_011],
)
def test_bias_gradients_of_batches_of_any_size(device_kernels, width, batch):
    random = np.random.default_rng(1)
    grad, bias = padded(random, batch, width), padded(random, 1, width)
    out, added = junk(width), bias[0].copy()
    device_kernels.bias_gradient(grad, out)
    assert_array_equal(out, grad.sum(axis=0, dtype=float))
    device_kernels.add_bias_gradient(0.5, grad, added)
    assert_array_equal(added, bias[0] + 0.5 * grad.sum(axis=0, dtype=float))


@pairs(device_kernels=DEVICES, width=[1, 7, 8], fan_in=[5, 32, 70], batch=[0, 1, 300, 5011])
def test_gradients_of_narrow_layers_in_batches_of_any_size(device_kernels, width, fan_in, batch):
    """From some number of rows on, the blocks of a GPU share them."""
    random = np.random.default_rng(1)
    x, grad = padded(random, batch, fan_in), padded(random, batch, width)
    for bias in (junk(grad.shape[1]), np.empty(0, np.float32)):
        out = junk(x.shape[1], grad.shape[1])
        device_kernels.weight_gradient(x, grad, out, bias)
        assert_allclose(out, x.astype(float).T @ grad, rtol=1e-5)
        if bias.size:
            assert_array_equal(bias, grad.sum(axis=0, dtype=float))


@examples
@given(shape=shapes)
def test_an_output_major_layer_is_linear_with_transposed_weights(device_kernels, shape):
    x = padded(shape.random, shape.batch, shape.fan_in)
    weights, bias = cases.weights_and_bias(shape.random, shape.fan_in, shape.width)
    out = junk(shape.batch, weights.shape[1])
    by_output = np.ascontiguousarray(weights.T)
    device_kernels.output_major_forward(x, by_output, bias, shape.width, out)
    assert_allclose(out, x.astype(float) @ weights + bias, rtol=1e-5, atol=1e-5)
    assert not out[:, shape.width :].any()


@examples
@given(shape=shapes)
def test_gradients_of_parts_add_up(device_kernels, shape):
    random, fraction = shape.random, 0.25
    x, grad = (padded(random, shape.batch, width) for width in (shape.fan_in, shape.width))
    weights, _ = cases.weights_and_bias(random, shape.fan_in, shape.width)
    expected = weights + fraction * (x.astype(float).T @ grad)
    device_kernels.add_weight_gradient(fraction, x, grad, weights)
    assert_allclose(weights, expected, rtol=1e-5, atol=1e-5)
    assert not weights[shape.fan_in :].any() and not weights[:, shape.width :].any()


@examples
@given(shape=shapes)
def test_scale_is_a_product_with_a_number(kernels, shape):
    grad = padded(shape.random, shape.batch, shape.width)
    expected = grad * np.float32(0.3)
    kernels.scale(0.3, grad)
    assert_allclose(grad, expected, rtol=1e-6)


@activations
@examples
@given(shape=shapes)
def test_activate_backward_multiplies_by_the_slope(kernels, kind, shape):
    random = shape.random
    z, grad = (padded(random, shape.batch, shape.width) for _ in range(2))
    activated = VALUES[kind](z.astype(float)).astype(np.float32)
    activated[:, shape.width :] = 0
    expected = grad * SLOPES[kind](z.astype(float))
    kernels.activate_backward(kind, activated, grad)
    assert_allclose(grad, expected, rtol=1e-3, atol=1e-6)
    assert not grad[:, shape.width :].any()


def activated(kernels, kind, *z):
    """f(z), as the bias of a layer without weights."""
    bias, weights, out = np.float32(z), np.zeros((1, len(z)), np.float32), junk(1, len(z))
    kernels.dense_forward(np.zeros((1, 1), np.float32), weights, bias, kind, len(z), out)
    return out[0]


def test_exponentials_are_stable_far_from_zero(kernels):
    floor = -plain_sgd.LIMIT
    for kind, expected in (
        (SIGMOID, [0, 3.7835e-44, 1, 1]),
        (TANH, [-1, -1, 1, 1]),
        (SELU, [floor, floor, 100 * plain_sgd.SLOPE, 1000 * plain_sgd.SLOPE]),
    ):
        out = activated(kernels, kind, -1000, -100, 100, 1000)
        assert_allclose(out, expected, rtol=1e-5, atol=1e-37)  # may flush what is denormal


@activations
def test_no_activation_hides_a_nan_from_the_loss(kernels, kind):
    assert np.isnan(activated(kernels, kind, np.nan, 1)).any()


def test_values_not_finite_are_cleared_after_a_skipped_row(kernels):
    values, totals = np.array([1, np.nan, -np.inf, 2], np.float32), np.zeros(TOTALS)
    kernels.forget_not_finite(totals, values)
    assert_array_equal(values, [1, np.nan, -np.inf, 2])
    totals[SKIPPED] = 1
    kernels.forget_not_finite(totals, values)
    assert_array_equal(values, [1, 0, 0, 2])
