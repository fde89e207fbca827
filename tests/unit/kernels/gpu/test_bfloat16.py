"""Operations whose operands are stored in bfloat16 give the reference's results, rounded.

The inputs are exact in bfloat16 (multiples of 1/8 within 4), so that only outputs are rounded.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hogbatch.kernels.contract import ACTIVATIONS, LOSSES, SGD, SKIPPED, Slots
from hogbatch.kernels.reference import NUMPY_KERNELS
from tests.support.kernel_backends import Backend
from tests.support.kernel_cases import (
    HYPER,
    NONE,
    csr_set,
    dense_set,
    junk,
    labels_for,
    padded,
    score_width,
    some_rows,
    totals,
    weights_and_bias,
)

pytestmark = pytest.mark.gpu
BATCH, INPUTS, OUTPUTS = 13, 21, 37  # 37 outputs are stored as 48
ROUNDING = 2.0**-8  # of one number: half of the last of 8 bits


class Operand(np.ndarray):
    """An array of float32 that is stored in bfloat16 on the device."""


def operand(array):
    return np.asarray(array, np.float32).view(Operand)


@np.errstate(invalid="ignore")
def shortened(numbers):
    """The bits of bfloat16, by comparing the two neighbours of each number."""
    below = np.asarray(numbers, np.float32).view(np.uint32) >> 16
    above = below + 1
    low, high = (lengthened(each).astype(float) for each in (below, above))
    middle, numbers = (low + high) / 2, np.asarray(numbers, float)
    further = np.abs(numbers) > np.abs(middle)
    nearest = np.where((numbers == middle) & (below & 1 == 1) | further, above, below)
    return nearest.astype(np.uint16)


def lengthened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


class ShortBackend(Backend):
    """Operations take arrays of `Operand` as bfloat16."""

    def move(self, value):
        if isinstance(value, Operand):
            return self.device.to_device(shortened(np.asarray(value)))
        return super().move(value)

    def fetch(self, there, here):
        if isinstance(here, Operand):
            bits = np.empty(here.shape, np.uint16)
            self.device.to_host(there, bits)
            here[...] = lengthened(bits)
        else:
            super().fetch(there, here)


@pytest.fixture(scope="module", params=[True, False], ids=["cuBLASLt", "plain"])
def gpu(request, backend_named):
    """A GPU with bfloat16, with or without epilogues."""
    backend_named("gpu")
    from hogbatch.kernels.gpu.cuda_device import CudaDevice

    device = CudaDevice(0, "bfloat16")
    device.enter()
    if not request.param:
        device.kernels.products.multiply_fused = lambda *arrays, **options: False
    return ShortBackend(device, device.kernels)


def copies(array):
    """Copies of `array`, as outputs of the device and of the reference."""
    return operand(array.copy()), np.asarray(array, np.float32).copy()


def both(gpu, operation, arguments, *outputs, **tolerance):
    """Call an operation on the device and the reference; `outputs` are pairs of their arrays."""
    getattr(gpu, operation)(*arguments, *(there for there, _ in outputs))
    getattr(NUMPY_KERNELS, operation)(*arguments, *(here for _, here in outputs))
    for there, here in outputs:
        assert_close(there, here, **tolerance)


def assert_close(there, here, times=1, atol=1e-6):
    """With operands, the result was rounded `times` times."""
    rounding = 1.01 * times * ROUNDING if isinstance(there, Operand) else 1e-5
    assert_allclose(np.asarray(there), here, rtol=rounding, atol=atol)


def floats(array):
    """Like `copies` for outputs that stay float32."""
    return array.copy(), array.copy()


@pytest.fixture
def layer():
    random = np.random.default_rng(7)
    weights, bias = weights_and_bias(random, INPUTS, OUTPUTS)
    x, grad = padded(random, BATCH, INPUTS), padded(random, BATCH, OUTPUTS)
    return operand(x), operand(weights), operand(bias), operand(grad)


TIES = 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8  # and one number near a tie
EDGES = np.array([0, -0.0, 1, *TIES, 3.38e38, 1e-40, 2**-133, np.inf, -np.inf], np.float32)


def test_numbers_are_rounded_to_the_nearest_and_ties_to_even(gpu):
    random = np.random.default_rng(0)
    numbers = np.concatenate([EDGES, random.normal(size=1000).astype(np.float32)])
    out = operand(np.empty_like(numbers))
    gpu.to_operands(numbers, out)
    finite = np.isfinite(numbers)
    assert_array_equal(np.asarray(out)[finite], lengthened(shortened(numbers[finite])))
    assert_array_equal(np.asarray(out)[~finite], numbers[~finite])
    beyond = operand(np.zeros(1))
    gpu.to_operands(np.array([3.4e38], np.float32), beyond)  # finite in float32 only
    assert beyond == np.inf


def test_nan_stays_nan(gpu):
    bits = np.array([0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0x7FFFFFFF, 0xFF800001], np.uint32)
    out = operand(np.zeros(len(bits)))
    gpu.to_operands(bits.view(np.float32), out)
    assert np.isnan(out).all()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_gather(gpu, sparse):
    random = np.random.default_rng(1)
    inputs = (csr_set if sparse else dense_set)(random, INPUTS)
    rows = some_rows(random, BATCH)
    both(gpu, "gather", (inputs, rows), copies(junk(BATCH, 32)))


@pytest.mark.parametrize("kind", ACTIVATIONS.values(), ids=ACTIVATIONS)
@pytest.mark.parametrize("last", [False, True], ids=["hidden", "scores"])
def test_forward(gpu, layer, kind, last):
    x, weights, bias, _ = layer
    out = (floats if last else copies)(junk(BATCH, 48))
    arguments = operand(x / 16), weights, np.asarray(bias) if last else bias, kind, OUTPUTS
    # A hidden product without an epilogue is rounded too, by up to ROUNDING times its largest cell.
    both(gpu, "dense_forward", arguments, out, **({} if last else {"atol": 0.03}))


@pytest.mark.parametrize("kind", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_backward(gpu, layer, kind):
    _, weights, _, grad = layer
    random = np.random.default_rng(2)
    below, bias = weights_and_bias(random, 5, INPUTS)
    x, activated = operand(padded(random, BATCH, 5)), operand(junk(BATCH, 32))
    gpu.dense_forward(x, operand(below), operand(bias), kind, INPUTS, activated)
    activated = operand(lengthened(shortened(np.asarray(activated))))
    arguments = grad, weights, kind, activated
    both(gpu, "dense_backward", arguments, copies(junk(BATCH, 32)), times=2)


def test_scores_of_an_output_major_layer_stay_float32(gpu, layer):
    x, weights, bias, _ = layer
    transposed = operand(np.ascontiguousarray(np.asarray(weights).T))
    arguments = x, transposed, np.asarray(bias), OUTPUTS
    both(gpu, "output_major_forward", arguments, floats(junk(BATCH, 48)))


def test_weight_gradient(gpu, layer):
    x, _, _, grad = layer
    both(gpu, "weight_gradient", (x, grad), floats(junk(32, 48)), floats(junk(48)))
    many = operand(padded(np.random.default_rng(3), 3000, 5))  # rows, more than a block sums
    both(gpu, "bias_gradient", (many,), floats(junk(8)))


def test_gradients_of_parts(gpu, layer):
    x, weights, bias, grad = layer
    weights, bias = np.asarray(weights), np.asarray(bias)
    both(gpu, "add_weight_gradient", (0.25, x, grad), floats(weights))
    both(gpu, "add_bias_gradient", (0.25, grad), floats(bias))
    both(gpu, "scale", (0.3,), copies(np.asarray(grad)))


@pytest.mark.parametrize("kind", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_slopes(gpu, layer, kind):
    activated, grad = layer[0], np.asarray(layer[0])[::-1].copy()
    both(gpu, "activate_backward", (kind, activated), copies(grad))


def test_bounds(gpu, layer):
    x, _, _, grad = layer
    hyper = HYPER._replace(rate=30.0)
    there, here = copies(np.asarray(grad))
    gpu.bound_layers(SGD, hyper, BATCH, (x, x), (there, operand(np.ones((BATCH, 4)))))
    NUMPY_KERNELS.bound_rows(SGD, hyper, BATCH, np.asarray(x), here)
    assert_close(there, here)
    assert (np.asarray(there) != np.asarray(grad)).any()


@pytest.mark.parametrize("kind", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_sparse_forward(gpu, layer, kind):
    random, (_, weights, bias, _) = np.random.default_rng(4), layer
    inputs, rows = csr_set(random, INPUTS), some_rows(random, BATCH)
    parameters = np.asarray(weights) / 64, np.asarray(bias)
    out = copies(junk(BATCH, 48))
    both(gpu, "csr_forward", (inputs, rows, *parameters, kind, OUTPUTS), out)


def test_sparse_update(gpu, layer):
    random, (_, weights, _, grad) = np.random.default_rng(4), layer
    inputs, rows = csr_set(random, INPUTS), some_rows(random, BATCH)
    both(gpu, "csr_bound_rows", (SGD, HYPER._replace(rate=30.0), inputs, rows), copies(grad))
    there, here = floats(np.asarray(weights))
    scratch = gpu.module.csr_scratch(*weights.shape)
    slots = Slots(NONE, NONE)
    moved = gpu.move((inputs, rows, grad, there))
    csr, numbers, slopes, stepped = moved
    none = Slots(*map(gpu.move, slots))
    gpu.module.csr_step(SGD, HYPER, csr, numbers, slopes, scratch, none, stepped)
    gpu.fetch(stepped, there)
    NUMPY_KERNELS.csr_step(SGD, HYPER, inputs, rows, np.asarray(grad), None, slots, here)
    assert_close(there, here)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_slopes_of_losses_are_rounded_once(gpu, loss):
    """Also where a probability is near 1, and the slope of its column near 0."""
    random, width = np.random.default_rng(5), score_width(loss, OUTPUTS)
    labels, rows = labels_for(random, loss, width), some_rows(random, BATCH)
    scores = padded(random, BATCH, width) * 3
    sums, grads = totals(), copies(junk(*scores.shape))
    arguments = loss, labels, rows, rows, width, scores
    gpu.loss_gradient(*arguments, grads[0], sums)
    expected = totals()
    NUMPY_KERNELS.loss_gradient(*arguments, grads[1], expected)
    assert_allclose(np.asarray(grads[0]), grads[1], rtol=1.01 * ROUNDING, atol=1e-8)
    assert_allclose(sums, expected, rtol=1e-5)


def test_values_that_are_not_finite_are_forgotten(gpu):
    values, sums = operand([1, np.nan, -np.inf, 2]), totals()
    sums[SKIPPED] = 1
    bits = np.array([0x3F80, 0x7FC1, 0xFF80, 0x4000], np.uint16)
    there = gpu.device.to_device(bits)
    gpu.module.forget_not_finite(gpu.device.to_device(sums), there)
    gpu.fetch(there, values)
    assert_array_equal(values, [1, 0, 0, 2])
