"""Workloads to predict: networks of the benchmarks, with random rows."""

import numpy as np
import pytest

from hogbatch.config.backbone import Backbone
from hogbatch.config.lsh import defaults
from hogbatch.data.batch import Examples, csr_inputs, dense_inputs, single_labels
from hogbatch.model.network import Network
from hogbatch.simulate.hardware.description import read_server
from hogbatch.simulate.hardware.workload import Workload


def dense_workload(widths=(54, 512, 512, 512, 7), slots=1, backbone=None, **exchanged):
    features, *hidden, outputs = widths
    below = backbone and Backbone.parse(backbone)
    network = Network.build(features, tuple(hidden), outputs, "relu", "softmax", backbone=below)
    rows = 1000
    inputs = dense_inputs(np.zeros((rows, features), np.float32))
    train = Examples(inputs, single_labels(np.zeros(rows, np.float32)), features)
    return Workload.of(network, train, slots, None, **exchanged)


def sparse_workload(widths=(2000, 64, 2), stored=20, slots=1, hashed=False, exchanges_sums=False):
    features, *hidden, outputs = widths
    network = Network.build(features, tuple(hidden), outputs, "relu", "softmax", hashed)
    rows, random = 500, np.random.default_rng(0)
    indices = np.sort(random.zipf(1.3, (rows, stored)) % features, axis=1).astype(np.int32)
    indptr = np.arange(rows + 1, dtype=np.int64) * stored
    inputs = csr_inputs(indptr, indices.reshape(-1), np.ones(indices.size, np.float32))
    train = Examples(inputs, single_labels(np.zeros(rows, np.float32)), features)
    lsh = defaults("dwta", outputs, 0) if hashed else None
    return Workload.of(network, train, slots, lsh, exchanges_sums=exchanges_sums)


PICTURES = "28x28x1,conv:32x3x3,relu,pool:2,conv:64x3x3,relu,pool:2"
WORKLOADS = {
    "pictures": dense_workload((784, 128, 10), backbone=PICTURES),
    "sequences": dense_workload((960, 10), backbone="1x30x32,lstm:128,last"),
    "dense": dense_workload(),
    "sparse": sparse_workload(),
    "linear": sparse_workload((2000, 1)),
    "hashed": sparse_workload((2000, 64, 12_000), hashed=True),
}


@pytest.fixture(scope="session")
def server():
    return read_server("epyc-2cores")
