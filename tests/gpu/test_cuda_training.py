"""Layers and batches of real size: several blocks a row, several tiles a product."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hogbatch.data.batch import csr_inputs, dense_inputs, single_labels
from hogbatch.kernels.contract import ADAM, LOSS, SOFTMAX, TOTALS, Hyper
from hogbatch.kernels.gpu.device import HostDevice
from hogbatch.kernels.network import Network, corrected
from hogbatch.models import Network as Model

pytestmark = pytest.mark.gpu

ROWS, FEATURES, CLASSES, BATCH = 3000, 700, 300, 1024
HYPER = Hyper(rate=0.002, l2=1e-4, momentum=0.9, beta2=0.999, epsilon=1e-6)


def make_inputs(random, sparse):
    dense = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    dense[random.random(dense.shape) < 0.9] = 0
    if not sparse:
        return dense_inputs(dense)
    rows, columns = np.nonzero(dense)
    indptr = np.searchsorted(rows, np.arange(ROWS + 1)).astype(np.int64)
    return csr_inputs(indptr, columns.astype(np.int32), dense[rows, columns])


def train(device, inputs, labels, model):
    """Ten updates; the loss of each, and the parameters at the end."""
    start = np.zeros(model.parameters, np.float32)
    model.initialise(start, seed=1)
    params = device.to_device(start)
    slots = [device.zeros(model.parameters, np.float32) for _ in range(2)]
    network = Network(device.kernels, device.xp, model.plan(), params, *slots)
    there = [type(part)(*map(device.to_device, part)) for part in (inputs, labels)]
    random, losses, sums = np.random.default_rng(2), [], np.empty(TOTALS)
    for t in range(1, 11):
        rows = device.to_device(random.integers(0, ROWS, BATCH))
        totals = device.zeros(TOTALS, np.float64)
        network.train_batch(*there, rows, SOFTMAX, ADAM, corrected(ADAM, HYPER, t), totals)
        device.to_host(totals, sums)
        losses.append(sums[LOSS] / BATCH)
    device.to_host(params, start)
    return losses, start


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_gpu_trains_as_the_host_does(cuda, sparse):
    random = np.random.default_rng(0)
    inputs = make_inputs(random, sparse)
    labels = single_labels(random.integers(0, CLASSES, ROWS).astype(np.float32))
    model = Model.build(FEATURES, (512, 100), CLASSES, "relu", "softmax")
    losses, params = train(cuda, inputs, labels, model)
    expected_losses, expected = train(HostDevice(), inputs, labels, model)
    assert_allclose(losses, expected_losses, rtol=1e-3)
    assert np.abs(params - expected).mean() < 1e-5
