"""Networks with rows that they can learn, and what takes steps on them. Needs NumPy alone."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hogbatch.data.batch import Examples, Inputs, csr_inputs, dense_inputs, single_labels
from hogbatch.model.network import Network

OPTIMIZERS = ("sgd", "adagrad")
CONCENTRATION = 3  # of stored features on a few: 1 is even, text is far from that


class Shape(NamedTuple):
    """A network and its rows; the rates are such that some steps move the loss well."""

    features: int
    hidden: tuple[int, ...]
    outputs: int
    rates: tuple[float, float]  # of OPTIMIZERS
    stored: int = 0  # values of a row in CSR form; 0: dense rows

    @property
    def flops(self) -> int:
        """Of one row's step: forward, backward, gradients. None backward to the inputs.

        A sparse first layer counts what is stored. Losses, activations, biases and the
        optimizer count nothing.
        """
        first, *others = (a * b for a, b in pairwise((self.features, *self.hidden, self.outputs)))
        if self.stored:
            first = first // self.features * self.stored
        return 2 * (2 * first + 3 * sum(others))


NETWORKS = {  # with features:stored where rows are sparse
    "300-512x8-2": Shape(300, (512,) * 8, 2, (0.01, 0.0002)),
    "54-512x3-7": Shape(54, (512,) * 3, 7, (0.02, 0.0002)),
    "300:12-512x8-2": Shape(300, (512,) * 8, 2, (0.05, 0.0002), stored=12),
    "50000:100-512-2": Shape(50_000, (512,), 2, (0.1, 0.002), stored=100),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A network at its start, and N rows in an order."""

    shape: Shape
    network: Network
    start: NDArray[np.float32]  # [P]
    examples: Examples
    order: NDArray[np.int64]  # [N]

    @classmethod
    def build(cls, shape: Shape, activation: str, rows: int, seed: int = 0) -> "Problem":
        """`rows` of random numbers, with labels that a linear model gave them."""
        random = np.random.default_rng(seed)
        network = Network.build(shape.features, shape.hidden, shape.outputs, activation, "softmax")
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


Made = tuple[Inputs, NDArray[np.float32]]  # rows, and the teacher's scores[N, C] of them


def _dense(
    shape: Shape, rows: int, teacher: NDArray[np.float32], random: np.random.Generator
) -> Made:
    x = random.standard_normal((rows, shape.features), np.float32)
    return dense_inputs(x), x @ teacher


def _csr(
    shape: Shape, rows: int, teacher: NDArray[np.float32], random: np.random.Generator
) -> Made:
    """Each row has one feature out of every `features / stored`, some far more often than others:
    rows of a batch meet in them."""
    width = shape.features // shape.stored
    chance = random.random((rows, shape.stored), np.float32) ** CONCENTRATION
    picked = np.minimum((width * chance).astype(np.int32), width - 1)
    picked += width * np.arange(shape.stored, dtype=np.int32)
    values = random.standard_normal(picked.shape, np.float32)
    indptr = np.arange(0, picked.size + 1, shape.stored, dtype=np.int64)
    scores = np.einsum("ns,nsc->nc", values, teacher[picked])
    return csr_inputs(indptr, picked.ravel(), values.ravel()), scores


class Work(Protocol):
    """What is timed: `step` may return before the device is done."""

    def step(self, start: int) -> None:
        """Once, on rows [start, start + B) of the order."""

    def synchronize(self) -> None:
        """Wait for the device."""


class Steps(Work, Protocol):
    """Training steps."""

    def loss(self) -> float:
        """Of the batch of the last step, before it: the mean over its rows."""
