"""PyTorch over a sample of very many labels: a batch's own ones and random others.

Jean, Cho, Memisevic, Bengio 2015 (arXiv 1412.2007), section 3; laws of sampling and the correction
by log Q as in TensorFlow's sampled_softmax_loss. The clock's "loss" is 1 - P@1.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from peers.contract import Problem, Rows, Setting, Watch, combine

if TYPE_CHECKING:
    from peers.torch_wide import Batch, Network, Step

KINDS = (  # law of the sample, and where log Q is subtracted; uniformly it is the same for all
    {"law": "log-uniform", "correction": "negatives"},
    {"law": "log-uniform", "correction": "all"},
    {"law": "uniform", "correction": "none"},
)
SAMPLES = (200, 500, 1000, 2000)
BATCHES = (64, 128, 256)
RATES = (0.001, 0.002, 0.005, 0.01)
STARTS = (0.01, 0.1)  # as in pytorch_wide.py


class PyTorchSampled:
    """One process, one or two threads; only touched rows of both layers are changed."""

    name = "pytorch-sampled"
    package = "torch"
    pace = ("threads",)

    def grid(self, problem: Problem) -> list[Setting]:
        """Adam, samples of 200 to 2,000 labels beside the batch's own."""
        sizes = [size for size in BATCHES if size <= len(problem.train)]
        common = {"start": STARTS, "threads": (1, 2), "optimizer": ("adam",)}
        return [
            setting | kind
            for kind in KINDS
            for setting in combine(sample=SAMPLES, batch=sizes, lr=RATES, **common)
        ]

    def train(self, problem: Problem, setting: Setting, seed: int, watch: Watch) -> None:
        """Minibatches of a fresh permutation each epoch."""
        from peers import torch_wide

        torch_wide.course(problem, setting, seed, watch, stepper)


def stepper(rows: Rows, problem: Problem, setting: Setting, seed: int) -> "tuple[Network, Step]":
    """A network and the function that makes one step of it."""
    import torch

    from peers import torch_wide as wide

    network = wide.Network(problem, setting, seed)
    weight, bias = wide.ByRow(network.weight, setting), wide.ByRow(network.bias, setting)
    sampler = Sampler(rows, problem.outputs, setting, seed)
    log_chance = torch.from_numpy(np.log(sampler.chance))

    def step(batch: "Batch") -> None:
        hidden, touched = network.hidden(batch)
        found, where = map(torch.from_numpy, sampler.active(batch.labels.numpy()))
        with torch.no_grad():
            part = network.weight.index_select(0, found)
            scores = torch.addmm(network.bias.index_select(0, found), hidden, part.t())
            correct(scores, log_chance[found], (batch.rows, where), setting["correction"])
            target = (batch.rows, where, batch.fractions)
            gradients = wide.differentiate(hidden, scores, part, target)
        hidden.backward(gradients.hidden)
        weight.step(found, gradients.weight)
        bias.step(found, gradients.bias)
        network.learn(batch, touched)

    return network, step


def correct(scores: Any, log_chance: Any, true: tuple[Any, Any], which: str) -> None:
    """Make up, in scores[B, n], for labels active by chance alone; `true` is (row, column).

    With "negatives" the sum of exp(score) is that over all labels, on average over samples: a row's
    own labels are active for certain. "all" takes log Q from these too.
    """
    if which != "none":
        scores -= log_chance
    if which == "negatives":
        scores.index_put_(true, log_chance[true[1]], accumulate=True)


class Sampler:
    """Draws labels with replacement, each as likely as any or, log-uniformly, by its rank.

    `chance` float32[C] is that of a label to be active in a batch, drawn or a true one of a row.
    """

    def __init__(self, rows: Rows, outputs: int, setting: Setting, seed: int) -> None:
        self._outputs, self._sample = outputs, setting["sample"]
        self._random = np.random.default_rng((seed, 1))
        self._place = np.zeros(outputs, np.int64)
        counts = np.bincount(rows.y.indices, minlength=outputs)
        self._by_rank = None
        drawn = np.full(outputs, 1 / outputs)
        if setting["law"] == "log-uniform":
            self._by_rank = np.argsort(-counts, kind="stable")
            rank = np.arange(outputs)
            drawn[self._by_rank] = np.log1p(1 / (rank + 1)) / math.log(outputs + 1)
        true = counts / len(rows)
        absent = self._sample * np.log1p(-drawn) + setting["batch"] * np.log1p(
            -np.minimum(true, 0.999)
        )
        self.chance = (-np.expm1(absent)).astype(np.float32)

    def draw(self) -> NDArray[np.int64]:
        """int64[sample] labels, not distinct."""
        if self._by_rank is None:
            return self._random.integers(self._outputs, size=self._sample)
        exponent = self._random.random(self._sample) * math.log(self._outputs + 1)
        ranks = np.minimum(np.exp(exponent).astype(np.int64), self._outputs) - 1
        return self._by_rank[ranks]

    def active(self, true: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The batch's distinct labels, and the place of each of `true` among them."""
        found = np.unique(np.concatenate((true, self.draw())))
        self._place[found] = np.arange(len(found))
        return found, self._place[true]


PEER = PyTorchSampled()
