"""Products with epilogues, and what happens where cuBLASLt has none; see also test_dense.py."""

import logging
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hogbatch.kernels.contract import ACTIVATIONS
from tests.support.kernel_cases import junk, padded, weights_and_bias

pytestmark = pytest.mark.gpu
RELU = ACTIVATIONS["relu"]
BATCH, INPUTS, OUTPUTS = 11, 20, 150  # 150 outputs are stored as 160, and their mask has 256 bits


@pytest.fixture(scope="module")
def gpu(backend_named):
    """The GPU's backend."""
    return backend_named("gpu")


@pytest.fixture(scope="module")
def lt(gpu):
    """The module under test, which imports CuPy."""
    from hogbatch.kernels.gpu import cublaslt

    return cublaslt


@pytest.fixture
def products(lt, gpu):
    """A CublasLt without plans."""
    import cupy

    return lt.CublasLt("float32", cupy.empty(lt.WORKSPACE_BYTES, np.uint8))


class Layer:
    """A layer on the device and on the host."""

    def __init__(self, lt, device):
        random = np.random.default_rng(0)
        self.x = padded(random, BATCH, INPUTS)
        self.weights, self.bias = weights_and_bias(random, INPUTS, OUTPUTS)
        self.z = self.x.astype(float) @ self.weights + self.bias
        self.device, width = device, self.weights.shape[1]
        names = ("x", "weights", "bias")
        self.there = {name: device.to_device(getattr(self, name)) for name in names}
        self.out = device.to_device(junk(BATCH, width))

    def forward(self, products, epilogue):
        there = self.there
        arrays = there["x"], there["weights"], self.out
        return products.multiply(epilogue, *arrays, vector=there["bias"])

    def fetch(self, array):
        here = np.empty(array.shape, array.dtype)
        self.device.to_host(array, here)
        return here


@pytest.fixture
def layer(lt, gpu):
    return Layer(lt, gpu.device)


def test_a_relu_follows_the_bias(lt, products, layer):
    assert layer.forward(products, lt.BIAS)
    assert_allclose(layer.fetch(layer.out), layer.z, rtol=1e-5)
    if layer.forward(products, lt.RELU_BIAS):  # it may not keep NaN
        assert_allclose(layer.fetch(layer.out), np.maximum(layer.z, 0), rtol=1e-5)


def test_an_epilogue_without_an_algorithm_is_reported_once(lt, products, layer, imitation, caplog):
    imitation.refused.add(lt.BIAS)
    with caplog.at_level(logging.DEBUG):
        assert [layer.forward(products, lt.BIAS) for _ in range(3)] == [False] * 3
    (line,) = caplog.messages
    assert line.startswith("cuBLASLt: BIAS of ")
    imitation.refused.clear()
    assert not layer.forward(products, lt.BIAS)  # is not asked again
    assert layer.forward(products, lt.RELU_BIAS)


def test_a_relu_that_replaces_nan_is_not_used(lt, products, layer, imitation, caplog):
    imitation.relu_keeps_nan = False
    with caplog.at_level(logging.DEBUG):
        assert not layer.forward(products, lt.RELU_BIAS)
    assert caplog.messages[0].endswith("its ReLU does not keep NaN")
    assert layer.forward(products, lt.BIAS)


def test_arrays_with_different_alignments_have_separate_plans(lt, products, layer):
    """An algorithm chosen for the better aligned array would be refused by the other."""
    device, width = layer.device, layer.weights.shape[1]
    for shift in (0, 4, 2, 1):  # floats
        space = device.zeros(BATCH * width + 64, np.float32)
        layer.out = space[shift : shift + BATCH * width].reshape(BATCH, width)
        assert layer.forward(products, lt.BIAS)
        assert_allclose(layer.fetch(layer.out), layer.z, rtol=1e-5)


def test_old_plans_are_discarded(lt, products, layer, monkeypatch):
    monkeypatch.setattr(lt, "MAX_PLANS", 2)
    x, out = layer.there["x"], layer.out
    for rows in (1, 2, 3, 4, 1):
        layer.there["x"], layer.out = x[:rows], out[:rows]
        assert layer.forward(products, lt.BIAS)
        assert_allclose(layer.fetch(layer.out), layer.z[:rows], rtol=1e-5)


def test_the_fastest_algorithm_is_used(lt, products, layer, imitation, monkeypatch):
    """Of the two that the stand-in proposes; one that fails is infinitely slow."""
    times = iter([math.inf, 3.0])
    monkeypatch.setattr(products, "_milliseconds", lambda plan, *_: next(times))
    assert layer.forward(products, lt.BIAS)
    (plan,) = products._plans.values()
    assert plan.found.algorithm[0] & 0xFFFFFFFF == 2
