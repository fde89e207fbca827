"""Networks with synthetic rows that they can learn, and the interface of timed work.

Needs only NumPy.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.config.backbone import Backbone
from hogbatch.data.batch import Examples, Inputs, csr_inputs, dense_inputs, single_labels
from hogbatch.model.network import Network

OPTIMIZERS = ("sgd", "adagrad")
CONCENTRATION = 3  # of stored features on few features: 1 is uniform; text is far from uniform


class Shape(NamedTuple):
    """A network and its rows; the rates are such that a few steps change the loss clearly."""

    features: int
    hidden: tuple[int, ...]
    outputs: int
    rates: tuple[float, float]  # by OPTIMIZERS
    stored: int = 0  # stored values per row in CSR form; 0: dense rows
    layers: str = ""  # below the dense ones, in the notation of model files

    @property
    def backbone(self) -> Backbone | None:
        """Those layers."""
        return Backbone.parse(self.layers) if self.layers else None

    @property
    def flops(self) -> int:
        """Floating-point operations per row: forward, backward (except to the inputs), gradients.

        A sparse first layer counts stored values. Losses, activations, biases and the
        optimizer are not counted.
        """
        below, width = self.backbone, self.features
        products = []
        if below is not None:
            products, width = [each.products for each in below.layers], below.outputs
        products += [a * b for a, b in pairwise((width, *self.hidden, self.outputs))]
        first, *others = products
        if self.stored:
            first = first // self.features * self.stored
        return 2 * (2 * first + 3 * sum(others))


PICTURES = "28x28x1,conv:32x3x3,relu,pool:2,conv:64x3x3,relu,pool:2"
NETWORKS = {  # with features:stored where rows are sparse
    "300-512x8-2": Shape(300, (512,) * 8, 2, (0.01, 0.0002)),
    "54-512x3-7": Shape(54, (512,) * 3, 7, (0.02, 0.0002)),
    "300:12-512x8-2": Shape(300, (512,) * 8, 2, (0.05, 0.0002), stored=12),
    "50000:100-512-2": Shape(50_000, (512,), 2, (0.1, 0.002), stored=100),
    "pictures": Shape(784, (128,), 10, (0.006, 0.0002), layers=PICTURES),
    "sequences": Shape(960, (), 10, (0.2, 0.002), layers="1x30x32,lstm:128,last"),
}


@dataclass(frozen=True, slots=True)
class SyntheticProblem:
    """A network with its initial parameters, and N rows in an order."""

    shape: Shape
    network: Network
    start: NDArray[np.float32]  # [P]
    examples: Examples
    order: NDArray[np.int64]  # [N]

    @classmethod
    def build(cls, shape: Shape, activation: str, rows: int, seed: int = 0) -> "SyntheticProblem":
        """`rows` rows of random numbers, labelled by a random linear model."""
        random = np.random.default_rng(seed)
        kinds = shape.outputs, activation, "softmax"
        network = Network.build(shape.features, shape.hidden, *kinds, backbone=shape.backbone)
        start = np.empty(network.parameters, np.float32)
        network.initialise(start, seed)
        teacher = random.standard_normal((shape.features, shape.outputs), np.float32)
        inputs, scores = (_csr if shape.stored else _dense)(shape, rows, teacher, random)
        labels = single_labels(scores.argmax(axis=1).astype(np.float32))
        examples = Examples(inputs, labels, shape.features)
        return cls(shape, network, start, examples, random.permutation(rows))

    def rate(self, optimizer: str) -> float:
        """The learning rate."""
        return self.shape.rates[OPTIMIZERS.index(optimizer)]


LabelledRows = tuple[Inputs, NDArray[np.float32]]  # rows, and the teacher's scores[N, C]


def _dense(
    shape: Shape, rows: int, teacher: NDArray[np.float32], random: np.random.Generator
) -> LabelledRows:
    x = random.standard_normal((rows, shape.features), np.float32)
    return dense_inputs(x), x @ teacher


def _csr(
    shape: Shape, rows: int, teacher: NDArray[np.float32], random: np.random.Generator
) -> LabelledRows:
    """Rows with one feature out of every `features / stored`.

    Some features are far more frequent than others, so the rows of a batch share some.
    """
    width = shape.features // shape.stored
    places = random.random((rows, shape.stored), np.float32) ** CONCENTRATION
    picked = np.minimum((width * places).astype(np.int32), width - 1)
    picked += width * np.arange(shape.stored, dtype=np.int32)
    values = random.standard_normal(picked.shape, np.float32)
    indptr = np.arange(0, picked.size + 1, shape.stored, dtype=np.int64)
    scores = np.einsum("ns,nsc->nc", values, teacher[picked])
    return csr_inputs(indptr, picked.ravel(), values.ravel()), scores


class TimedWork(Protocol):
    """Work to time; `step` may return before the device is done."""

    def step(self, start: int) -> None:
        """Do it once, on rows [start, start + B) of the order."""

    def synchronize(self) -> None:
        """Wait for the device."""


class TrainingSteps(TimedWork, Protocol):
    """Training steps."""

    def loss(self) -> float:
        """Mean loss of the last step's batch, before that step."""
