"""The nodes of a captured training step: each costs about a microsecond of the device."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.kernels.contract import LOSSES, SKIPPED, TOTALS, Hyper
from hogbatch.kernels.executor import Executor
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.model.network import Network
from tests.support.kernel_cases import csr_set, dense_set, labels_for

BATCH, ROWS = 6, 9
LOSS = LOSSES["softmax"]
HYPER = Hyper(rate=0.05, l2=0.0, momentum=0.5, beta2=0.75, epsilon=0.01)
# Networks as deep as 300-512x8-2 and 54-512x3-7: of wider layers, a step has as many nodes.
W8A = 30, (40,) * 8, 2
COVTYPE = 30, (40,) * 3, 7
LABELS = 9, (18,), 21


@pytest.fixture(scope="module")
def make_cuda():
    """A function that creates a device, on which no product is planned yet."""
    cupy = pytest.importorskip("cupy")
    from hogbatch.kernels.gpu.cuda_device import CudaDevice

    def make(precision="float32"):
        device = CudaDevice(0, precision)
        device.enter()
        return device

    make.cupy = cupy
    return make


class Step:
    """One training step on a device; equal arguments make equal steps."""

    def __init__(
        self,
        device,
        shape=W8A,
        optimizer="sgd",
        sparse=False,
        activation="relu",
        output_major=False,
    ):
        random, self.device = np.random.default_rng(3), device
        network = Network.build(*shape, activation, "softmax", output_major)
        start = np.zeros(network.parameters, np.float32)
        network.initialise(start, 1)
        spec = OPTIMIZERS[optimizer]
        slots = (np.zeros(start.size if n < spec.slots else 0, np.float32) for n in range(2))
        flat = [device.to_device(each) for each in (start, *slots)]
        self.params, self.totals = flat[0], device.zeros(TOTALS, np.float64)
        self.network = Executor(device.kernels, device.xp, network.layer_views(), *flat)
        inputs = (csr_set if sparse else dense_set)(random, shape[0], ROWS)
        self.arrays = inputs, labels_for(random, LOSS, shape[2], ROWS)
        self.rows = device.to_device(random.integers(0, ROWS, BATCH))
        rate = device.to_device(np.array([HYPER.rate]))
        self.kinds = LOSS, spec.kind, HYPER._replace(rate=rate)
        self.move()

    def move(self):
        self.data = [type(each)(*map(self.device.to_device, each)) for each in self.arrays]

    def __call__(self):
        self.network.train_batch(*self.data, self.rows, *self.kinds, self.totals)

    def host(self, array):
        here = np.empty(array.shape, array.dtype)
        self.device.to_host(array, here)
        return here


def nodes(device, work):
    """The number of nodes of `work`, which runs once and is then captured."""
    work()
    stream = device.xp.cuda.get_current_stream()
    stream.begin_capture()
    work()
    text = stream.end_capture().debug_dot_str()
    return len(set(re.findall(r'^\s*"(graph_\d+_node_\d+)"\[', text, re.MULTILINE)))


def nodes_of(device, *arguments, **keywords):
    return nodes(device, Step(device, *arguments, **keywords))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        # gather, a product per layer, loss, forget, products and slopes down (the narrow last layer
        # has one launch), bound, gradients, step
        ({}, 1 + 9 + 2 + (1 + 7 * 2) + 1 + 9 + 1),
        ({"shape": COVTYPE}, 1 + 4 + 2 + (1 + 2 * 2) + 1 + 4 + 1),
        ({"optimizer": "adagrad"}, 1 + 9 + 2 + (1 + 7 * 2) + 0 + 9 + 1),
        # 8 more launches for the activations
        ({"activation": "tanh"}, 1 + 17 + 2 + (1 + 7 * 2) + 1 + 9 + 1),
        # a sparse first layer: forward, bound, and 3 of its update, but neither gather nor gradient
        ({"sparse": True}, (1 + 8) + 2 + (1 + 7 * 2) + 1 + 8 + (1 + 3) + 1 + 1),
        # the gradient of the bias of an output-major layer is a launch more
        ({"shape": LABELS, "output_major": True}, 1 + 2 + 2 + 2 + 1 + (1 + 2) + 1),
    ],
    ids=["sgd", "54-512x3-7", "adagrad", "tanh", "sparse", "output-major"],
)
def test_a_hidden_layer_costs_four_nodes(make_cuda, imitation, step, expected):
    assert nodes_of(make_cuda(), **step) == expected


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("refused", "keeps_nan", "expected"),
    [
        ({"BIAS", "RELU_BIAS", "BGRADA"}, True, 38 + 8 + 8),
        (set(), False, 38 + 8),
    ],
    ids=["all", "nan"],
)
def test_missing_epilogues_add_launches_but_keep_results(
    make_cuda, imitation, refused, keeps_nan, expected
):
    imitation.refused.update(getattr(imitation, name) for name in refused)
    imitation.relu_keeps_nan = keeps_nan
    device = make_cuda()
    step, plain = Step(device), Step(HostDevice())
    assert nodes(device, step) == expected
    plain()
    assert_allclose(step.host(step.params), plain.params, rtol=1e-4, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("keeps_nan", [True, False])
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")
def test_a_row_that_is_not_finite_is_skipped_with_either_relu(
    make_cuda, imitation, keeps_nan, precision
):
    imitation.relu_keeps_nan = keeps_nan
    copies = precision == "bfloat16"  # of the parameters
    assert nodes_of(make_cuda(precision)) == copies + 38 + 8 * (not keeps_nan)
    step, plain = Step(make_cuda(precision)), Step(HostDevice())
    for each in (step, plain):
        row = int(each.host(each.rows)[2])
        each.arrays[0].dense[row, 5] = np.nan
        each.move()
        each()
    assert step.host(step.totals)[SKIPPED] == plain.totals[SKIPPED] > 0
    assert np.isfinite(step.host(step.params)).all()
    tolerance = 1e-6 if precision == "float32" else 2e-3
    assert_allclose(step.host(step.params), plain.params, rtol=1e-4, atol=tolerance)
