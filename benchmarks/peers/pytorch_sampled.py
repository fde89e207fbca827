"""PyTorch over a sample of very many labels: the labels of the batch and random others.

Jean, Cho, Memisevic, Bengio 2015 (arXiv 1412.2007), section 3; sampling distributions and the
correction by log Q as in TensorFlow's sampled_softmax_loss. The "loss" of the stopwatch is 1 - P@1.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.contract import Problem, Rows, Setting, Stopwatch, combine

if TYPE_CHECKING:
    from benchmarks.peers.torch_wide import Step, WideBatch, WideNetwork

KINDS = (  # distribution, and the scores from which log Q is subtracted (uniform: a constant)
    {"law": "log-uniform", "correction": "negatives"},
    {"law": "log-uniform", "correction": "all"},
    {"law": "uniform", "correction": "none"},
)
SAMPLES = (200, 500, 1000, 2000)
BATCHES = (64, 128, 256)
RATES = (0.001, 0.002, 0.005, 0.01)
STARTS = (0.01, 0.1)  # as in pytorch_full.py


class PyTorchSampled:
    """One process, one or two threads; a step changes only the used rows of both layers."""

    name = "pytorch-sampled"
    package = "torch"
    pace = ("threads",)

    def grid(self, problem: Problem) -> list[Setting]:
        """Adam, samples of 200 to 2,000 labels in addition to those of the batch."""
        sizes = [size for size in BATCHES if size <= len(problem.train)]
        common = {"start": STARTS, "threads": (1, 2), "optimizer": ("adam",)}
        return [
            setting | kind
            for kind in KINDS
            for setting in combine(sample=SAMPLES, batch=sizes, lr=RATES, **common)
        ]

    def train(self, problem: Problem, setting: Setting, seed: int, watch: Stopwatch) -> None:
        """Train on batches of a new permutation each epoch."""
        from benchmarks.peers import torch_wide

        torch_wide.course(problem, setting, seed, watch, stepper)


def stepper(
    rows: Rows, problem: Problem, setting: Setting, seed: int
) -> "tuple[WideNetwork, Step]":
    """A network and the function that trains it on one batch."""
    import torch

    from benchmarks.peers import torch_wide as wide

    network = wide.WideNetwork(problem, setting, seed)
    weight, bias = wide.ByRow(network.weight, setting), wide.ByRow(network.bias, setting)
    sampler = Sampler(rows, problem.outputs, setting, seed)
    log_probability = torch.from_numpy(np.log(sampler.probability))

    def step(batch: "WideBatch") -> None:
        hidden, touched = network.hidden(batch)
        sampled, where = map(torch.from_numpy, sampler.active(batch.labels.numpy()))
        with torch.no_grad():
            part = network.weight.index_select(0, sampled)
            scores = torch.addmm(network.bias.index_select(0, sampled), hidden, part.t())
            correct(scores, log_probability[sampled], (batch.rows, where), setting["correction"])
            target = (batch.rows, where, batch.fractions)
            gradients = wide.differentiate(hidden, scores, part, target)
        hidden.backward(gradients.hidden)
        weight.step(sampled, gradients.weight)
        bias.step(sampled, gradients.bias)
        network.learn(batch, touched)

    return network, step


def correct(scores: Any, log_probability: Any, true: tuple[Any, Any], which: str) -> None:
    """Correct scores[B, n] for the probability that labels are active; `true` is (row, column).

    With "negatives" the expected sum of exp(score) over samples is the sum over all labels, because
    a row's own labels are always active. "all" subtracts log Q from these too.
    """
    if which != "none":
        scores -= log_probability
    if which == "negatives":
        scores.index_put_(true, log_probability[true[1]], accumulate=True)


class Sampler:
    """Draws labels with replacement, uniformly or log-uniformly by their rank.

    `probability` float32[C] is the probability that a label is active in a batch: drawn, or a label
    of a row.
    """

    def __init__(self, rows: Rows, outputs: int, setting: Setting, seed: int) -> None:
        self._outputs, self._sample = outputs, setting["sample"]
        self._random = np.random.default_rng((seed, 1))
        self._columns = np.zeros(outputs, np.int64)
        counts = np.bincount(rows.y.indices, minlength=outputs)
        self._by_rank: NDArray[np.int64] | None = None
        drawn = np.full(outputs, 1 / outputs)
        if setting["law"] == "log-uniform":
            self._by_rank = np.argsort(-counts, kind="stable")
            rank = np.arange(outputs)
            drawn[self._by_rank] = np.log1p(1 / (rank + 1)) / math.log(outputs + 1)
        true = counts / len(rows)
        absent = self._sample * np.log1p(-drawn) + setting["batch"] * np.log1p(
            -np.minimum(true, 0.999)
        )
        self.probability = (-np.expm1(absent)).astype(np.float32)

    def draw(self) -> NDArray[np.int64]:
        """int64[sample] labels, possibly repeated."""
        if self._by_rank is None:
            return self._random.integers(self._outputs, size=(self._sample,))
        exponent = self._random.random(self._sample) * math.log(self._outputs + 1)
        ranks = np.minimum(np.exp(exponent).astype(np.int64), self._outputs) - 1
        ranked: NDArray[np.int64] = self._by_rank[ranks]
        return ranked

    def active(self, true: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The distinct active labels, and the index of each of `true` among them."""
        sampled = np.unique(np.concatenate((true, self.draw())))
        self._columns[sampled] = np.arange(len(sampled))
        return sampled, self._columns[true]


PEER = PyTorchSampled()
