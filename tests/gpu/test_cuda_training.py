"""Layers and batches of realistic size: several columns per thread, several tiles per product."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hogbatch.data.batch import csr_inputs, dense_inputs, single_labels
from hogbatch.kernels.contract import ADAM, LOSS, SOFTMAX, TOTALS, Hyper
from hogbatch.kernels.executor import Executor, corrected
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.kernels.gpu.graph import CapturedSteps
from hogbatch.model.network import Network

pytestmark = pytest.mark.gpu

ROWS, FEATURES, CLASSES, BATCH, SMALL = 1000, 700, 300, 256, 64
HYPER = Hyper(rate=0.01, l2=1e-4, momentum=0.9, beta2=0.999, epsilon=1e-6)
NETWORK = Network.build(FEATURES, (512, 100), CLASSES, "relu", "softmax")
UPDATES = 6


def make_set(sparse):
    random = np.random.default_rng(0)
    dense = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    dense[random.random(dense.shape) < 0.9] = 0
    labels = single_labels(random.integers(0, CLASSES, ROWS).astype(np.float32))
    if not sparse:
        return dense_inputs(dense), labels
    rows, columns = np.nonzero(dense)
    indptr = np.searchsorted(rows, np.arange(ROWS + 1)).astype(np.int64)
    return csr_inputs(indptr, columns.astype(np.int32), dense[rows, columns]), labels


class Training:
    """The model with its data on a device; equal arguments give equal numbers."""

    def __init__(self, device, sparse=False, densify=False):
        self.device = device
        self.params = np.zeros(NETWORK.parameters, np.float32)
        NETWORK.initialise(self.params, seed=1)
        self._there = device.to_device(self.params)
        slots = [device.zeros(NETWORK.parameters, np.float32) for _ in range(2)]
        plan = NETWORK.layer_views()
        network = Executor(device.kernels, device.xp, plan, self._there, *slots, densify)
        self.steps = CapturedSteps(device, network, SOFTMAX, ADAM, HYPER)
        parts = make_set(sparse)
        self._data = [type(part)(*map(device.to_device, part)) for part in parts]
        self._totals = device.zeros(TOTALS, np.float64)
        self._rows = {size: device.zeros(size, np.int64) for size in (BATCH, SMALL)}

    def train(self, batch):
        """Some updates; the loss of each, and the parameters at the end."""
        device, rows, random = self.device, self._rows[batch], np.random.default_rng(2)
        losses, sums = [], np.empty(TOTALS)
        for t in range(1, UPDATES + 1):
            device.copy_into(rows, random.integers(0, ROWS, batch))
            self.steps.set_rate(corrected(ADAM, HYPER, t).rate)
            self._totals.fill(0)
            self.steps.train(0, *self._data, rows, rows, self._totals)
            device.to_host(self._totals, sums)
            losses.append(sums[LOSS] / batch)
        device.to_host(self._there, self.params)
        return losses, self.params


def assert_trains_alike(training, expected, batch, rtol, mean):
    losses, params = training.train(batch)
    expected_losses, expected_params = expected.train(batch)
    assert_allclose(losses, expected_losses, rtol=rtol)
    assert np.abs(params - expected_params).mean() < mean
    return losses


@pytest.mark.parametrize(
    ("sparse", "densify"),
    [(False, False), (True, False), (True, True)],
    ids=["dense", "sparse", "written out"],
)
def test_a_gpu_trains_like_the_host(cuda, sparse, densify):
    training = Training(cuda, sparse, densify)
    expected = Training(HostDevice(), sparse, densify)
    losses = assert_trains_alike(training, expected, BATCH, rtol=1e-3, mean=1e-5)
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_a_faster_precision_trains_similarly(make_cuda, precision):
    training, expected = Training(make_cuda(precision)), Training(HostDevice())
    losses = assert_trains_alike(training, expected, SMALL, rtol=2e-3, mean=5e-3)
    assert losses[-1] < 0.99 * losses[0]


@pytest.fixture
def memory_limit(cuda):
    """A function that limits CuPy's device memory to the current use plus the given bytes."""
    pool = cuda.xp.get_default_memory_pool()

    def limit(more):
        cuda.free_unused()
        pool.set_limit(size=pool.total_bytes() + more)

    yield limit
    pool.set_limit(size=0)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_batch_that_does_not_fit_fails_and_a_smaller_one_trains(cuda, memory_limit, sparse):
    training, expected = Training(cuda, sparse), Training(HostDevice(), sparse)
    assert_trains_alike(training, expected, SMALL, rtol=1e-3, mean=1e-5)
    memory_limit(more=64 << 20)
    with pytest.raises(MemoryError):
        training.steps.reserve(100_000, sparse=sparse)
    cuda.free_unused()
    assert_trains_alike(training, expected, SMALL, rtol=1e-3, mean=1e-5)
