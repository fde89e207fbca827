"""Products with and without epilogues, and what happens where cuBLASLt has none.

See also test_dense.py.
"""

import logging
import math
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hogbatch.errors import DeviceError
from hogbatch.kernels.contract import ACTIVATIONS
from tests.support.kernel_cases import junk, numbers, padded, weights_and_bias
from tests.support.pairs import pairs

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
    return lt.CublasLt("float32")


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
        return products.multiply_fused(epilogue, *arrays, there["bias"])

    def fetch(self, array):
        here = np.empty(array.shape, array.dtype)
        self.device.to_host(array, here)
        return here


@pytest.fixture
def layer(lt, gpu):
    return Layer(lt, gpu.device)


def on_device(device, host, kind):
    """`host` in the type `kind`; uint16 is bfloat16."""
    there, out = device.to_device(np.ascontiguousarray(host)), device.empty(host.shape, kind)
    device.kernels.to_operands(there, out)
    return out


@pairs(
    precision=["float32", "tf32", "bfloat16"],
    rounded=[False, True],  # the result, if the operands are
    rows=[1, 2, 13, 64],
    inner=[1, 3, 7, 48],
    columns=[1, 5, 8, 160],
    transposed=[(False, False), (True, False), (False, True)],
    add=[False, True],
)
def test_products_of_any_shape(lt, gpu, precision, rounded, rows, inner, columns, transposed, add):
    """Rows need not be a multiple of 16 bytes; planning does not change what is added to."""
    random, device = np.random.default_rng(0), gpu.device
    a, b, before = (
        numbers(random, *shape) for shape in ((rows, inner), (inner, columns), (rows, columns))
    )
    kind = np.dtype(np.uint16 if precision == "bfloat16" else np.float32)
    factors = (each.T if turned else each for each, turned in zip((a, b), transposed, strict=True))
    factors = [on_device(device, each, kind) for each in factors]
    out = on_device(device, before, kind if rounded else np.dtype(np.float32))
    products = lt.CublasLt(precision)
    for products.repeated in (False, True, True):  # planned, timed, then known
        products.multiply(*factors, out, *transposed, fraction=0.5, add=add)
    result = np.empty(out.shape, out.dtype)
    device.to_host(out, result)
    expected, tolerance = before + 1.5 * (a @ b) if add else 0.5 * (a @ b), 0.0
    if out.dtype == np.uint16:
        result = (result.astype(np.uint32) << 16).view(np.float32)
        tolerance = 2.0**-7 * np.abs(expected).max()
    assert_allclose(result, expected, rtol=1e-6, atol=tolerance)


def failing(status):
    """A library that returns this status."""
    return SimpleNamespace(cublasLtMatmulDescCreate=lambda *_: status)


def test_a_plain_product_without_an_algorithm_is_an_error(products, layer, monkeypatch):
    monkeypatch.setattr(products, "_library", failing(15))
    there = layer.there
    with pytest.raises(
        DeviceError, match=r"matrices of shapes \(11, 32\) and \(32, 160\) in float32: "
    ):
        products.multiply(there["x"], there["weights"], layer.out)


def test_out_of_memory_is_not_remembered(lt, products, layer, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(products, "_library", failing(3))
        layer.forward(products, lt.BIAS)
    assert layer.forward(products, lt.BIAS)


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


def test_the_fastest_algorithm_is_used_for_repeated_products(
    lt, products, layer, imitation, monkeypatch
):
    """Of the two that the stand-in proposes; one that fails is infinitely slow."""
    times = iter([math.inf, 3.0])
    monkeypatch.setattr(products, "_milliseconds", lambda plan, *_: next(times))
    for products.repeated, algorithm in ((False, 1), (True, 2), (True, 2), (False, 2)):
        assert layer.forward(products, lt.BIAS)
        (plan,) = products._plans.values()
        assert plan.found.algorithm[0] & 0xFFFFFFFF == algorithm
