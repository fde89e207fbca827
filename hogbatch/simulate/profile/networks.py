"""The networks on which a machine is measured, with random rows in memory.

None of them is a network of the benchmarks: a description must predict networks that it has not
been fitted to.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.lsh import defaults
from hogbatch.config.optimizers import OPTIMIZERS
from hogbatch.data.batch import (
    Examples,
    Labels,
    csr_inputs,
    dense_inputs,
    multi_labels,
    single_labels,
)
from hogbatch.model.network import Network
from hogbatch.simulate.hardware.workload import Workload
from hogbatch.store.dataset import EpochOrders
from hogbatch.store.layout import arrange
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment
from hogbatch.wire.messages import Optimizer, Welcome
from hogbatch.workers.compute.assignment import Assignment

DENSE_VALUES = 1 << 24  # of a dense set: twice as large as most caches
SPARSE_VALUES = 1 << 22
MAX_ROWS = 1 << 17
COMMON = 1.1  # exponent of the frequencies of features and labels: frequency ~ rank^-COMMON


@dataclass(frozen=True, slots=True)
class Sizes:
    """A network to measure. `stored` values per row of sparse inputs; 0: dense inputs."""

    widths: tuple[int, ...]
    loss: str
    optimizer: str
    stored: int = 0
    labels: int = 0  # per row; 0: one class
    activation: str = "relu"
    hashed: bool = False

    @property
    def name(self) -> str:
        """Widths, kind and optimizer, for messages."""
        kind = "hashed" if self.hashed else "sparse" if self.stored else "dense"
        return f"{'-'.join(map(str, self.widths))} {kind} {self.optimizer}"


DENSE = (
    Sizes((40, 256, 256, 5), "softmax", "adagrad"),
    Sizes((200, 384, 384, 384, 384, 10), "softmax", "sgd"),
    Sizes((100, 768, 400), "multilabel", "adagrad", labels=10),
    Sizes((256, 1024, 1024, 1024, 8), "softmax", "adagrad"),
    Sizes((80, 320, 320, 320, 2), "softmax", "adagrad", activation="sigmoid"),
)
SPARSE = (
    Sizes((30_000, 96, 2), "softmax", "sgd", stored=80),
    Sizes((60_000, 192, 20), "softmax", "adagrad", stored=200),
    Sizes((90_000, 64, 2), "softmax", "adagrad", stored=120),
    Sizes((30_000, 1), "logistic", "adagrad", stored=80),
    Sizes((60_000, 1), "logistic", "sgd", stored=200),
)
HASHED = (
    Sizes((8_000, 96, 20_000), "multilabel-softmax", "adagrad", stored=60, labels=4, hashed=True),
    Sizes((8_000, 160, 40_000), "multilabel-softmax", "adagrad", stored=60, labels=4, hashed=True),
)


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity
class ProbeNetwork:
    """A network with its rows and parameters, as a worker gets them."""

    assignment: Assignment
    workload: Workload  # the sizes on which costs depend


def build(sizes: Sizes) -> ProbeNetwork:
    random, spec = np.random.default_rng(0), OPTIMIZERS[sizes.optimizer]
    features, *hidden, outputs = sizes.widths
    network = Network.build(
        features, tuple(hidden), outputs, sizes.activation, sizes.loss, sizes.hashed
    )
    segment = Segment.create("probe", arrange(SharedModel.fields(network.parameters, spec.slots)))
    model = SharedModel.of(segment)
    segment.close()  # the arrays keep its memory
    for tensor in network.tensors():
        spread = 1 / np.sqrt(tensor.shape[0] if len(tensor.shape) > 1 else 1e6)
        tensor.view(model.params)[...] = random.standard_normal(tensor.shape, np.float32) * spread
    values = SPARSE_VALUES if sizes.stored else DENSE_VALUES
    rows = min(MAX_ROWS, max(64, values // (sizes.stored or features)))
    train = _examples(sizes, rows, random)
    model.first[:] = 1.0  # a usual sum of squares: steps stay small
    model.second[:] = 1.0
    lsh = defaults("dwta", outputs, 0) if sizes.hashed else None
    workload = Workload.of(
        network,
        train,
        spec.slots,
        lsh,
        may_densify=False,
        exchanges_sums=spec.summed_slots,
    )
    optimizer = Optimizer(sizes.optimizer, 0.0, spec.momentum, spec.beta2, spec.epsilon)
    welcome = Welcome(
        network.layers, sizes.loss, optimizer, "delta", 0, "off", "float32", lsh, name="probe"
    )
    orders = EpochOrders(*[np.arange(rows)] * 2)
    fence = np.zeros(8, np.int64)
    assignment = Assignment(welcome, network, {"train": train}, orders, model, fence)
    return ProbeNetwork(assignment, workload)


def _examples(sizes: Sizes, rows: int, random: np.random.Generator) -> Examples:
    features = sizes.widths[0]
    labels = _labels(sizes, rows, random)
    if not sizes.stored:
        dense = random.standard_normal((rows, features), np.float32)
        return Examples(dense_inputs(dense), labels, features).read_only()
    indptr = np.arange(rows + 1, dtype=np.int64) * sizes.stored
    indices = _ranks(features, rows * sizes.stored, random).reshape(rows, -1)
    indices.sort(axis=1)
    values = np.ones(indices.size, np.float32)
    return Examples(csr_inputs(indptr, indices.reshape(-1), values), labels, features).read_only()


def _labels(sizes: Sizes, rows: int, random: np.random.Generator) -> Labels:
    outputs = sizes.widths[-1]
    if not sizes.labels:
        return single_labels(random.integers(0, max(outputs, 2), rows).astype(np.float32))
    indptr = np.arange(rows + 1, dtype=np.int64) * sizes.labels
    indices = _ranks(outputs, rows * sizes.labels, random).reshape(rows, -1)
    indices.sort(axis=1)
    return multi_labels(indptr, indices.reshape(-1))


def _ranks(count: int, size: int, random: np.random.Generator) -> NDArray[np.int32]:
    """Draw int32[size] below `count`: some numbers are frequent, most are rare, like words."""
    shares = np.cumsum(np.arange(1, count + 1) ** -COMMON)
    order = random.permutation(count)
    drawn = np.searchsorted(shares, random.random(size) * shares[-1])
    ranks: NDArray[np.int32] = order[np.minimum(drawn, count - 1)].astype(np.int32)
    return ranks
