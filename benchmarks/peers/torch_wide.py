"""The network of the PyTorch peers for very many labels; importing this module imports torch.

Covers: batches, the first layer with its lazy optimizer, the output layer's gradient, exact P@k.
Does not cover: which labels of the output layer a step computes (see the two peers).
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.peers.contract import Problem, Rows, Setting, Stopwatch

TOP = (1, 3, 5)  # k of P@k
SCORES = 1 << 25  # float32 scores per block of an evaluation: 128 MiB
WARM_STEPS = 3
Step = Callable[["WideBatch"], None]


class WideBatch(NamedTuple):
    """B rows: the inputs are `values` of `features[places]`, those of a row from its offset on.

    `labels[n]` is a label of row `rows[n]`, and `fractions[n]` its target, 1/#labels of that row.
    """

    features: Tensor  # int64, distinct
    places: Tensor  # int64
    offsets: Tensor  # int64[B]
    values: Tensor  # float32
    rows: Tensor  # int64
    labels: Tensor  # int64
    fractions: Tensor  # float32

    def __len__(self) -> int:
        return len(self.offsets)


def labelled(rows: Rows) -> Rows:
    """The rows with labels; the others have neither loss nor gradient."""
    some = np.flatnonzero(np.diff(rows.y.indptr))
    return rows if len(some) == len(rows) else Rows(rows.x[some], rows.y[some])


def batches(rows: Rows, size: int, random: np.random.Generator) -> Iterator[WideBatch]:
    """One epoch, in a new order; an incomplete last batch is left out."""
    order = random.permutation(len(rows))
    x, y = rows.x[order], rows.y[order]
    for start in range(0, len(rows) - size + 1, size):
        yield batch(x, y, start, start + size)


def batch(x: csr_array, y: csr_array, start: int, stop: int) -> WideBatch:
    """The rows from `start` to `stop`."""
    stored, chosen = (slice(m.indptr[start], m.indptr[stop]) for m in (x, y))
    features, places = np.unique(x.indices[stored], return_inverse=True)
    many = np.diff(y.indptr[start : stop + 1])
    rows = np.repeat(np.arange(stop - start), many)
    fractions = (1 / np.maximum(many, 1)).astype(np.float32)[rows]
    return WideBatch(
        torch.from_numpy(features.astype(np.int64)),
        torch.from_numpy(places.astype(np.int64)),
        torch.from_numpy((x.indptr[start:stop] - x.indptr[start]).astype(np.int64)),
        torch.from_numpy(x.data[stored]),
        torch.from_numpy(rows),
        torch.from_numpy(y.indices[chosen].astype(np.int64)),
        torch.from_numpy(fractions),
    )


class ByRow:
    """Adam or Adagrad on only those rows of `weight` that a batch uses.

    The same as SparseAdam and sparse Adagrad in two thirds of their time, as the rows are distinct.
    """

    def __init__(self, weight: Tensor, setting: Setting) -> None:
        self._weight, self._rate = weight, setting["lr"]
        self._adam = setting["optimizer"] == "adam"
        self._mean = torch.zeros_like(weight) if self._adam else None
        self._square = torch.zeros_like(weight)
        self._steps = 0

    def step(self, rows: Tensor, gradient: Tensor) -> None:
        """Update `weight[rows]`."""
        self._steps += 1
        square = self._square.index_select(0, rows)
        if self._mean is None:
            square.addcmul_(gradient, gradient)
            self._square.index_copy_(0, rows, square)
            change, rate = gradient / square.sqrt_().add_(1e-10), self._rate
        else:
            square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
            self._square.index_copy_(0, rows, square)
            mean = self._mean.index_select(0, rows).lerp_(gradient, 0.1)
            self._mean.index_copy_(0, rows, mean)
            unbiased = (1 - 0.999**self._steps) ** 0.5
            rate = self._rate * unbiased / (1 - 0.9**self._steps)
            change = mean.div_(square.sqrt_().add_(1e-8 * unbiased))
        self._weight.index_add_(0, rows, change, alpha=-rate)


def plain(parameters: list[Tensor], setting: Setting) -> Any:
    """PyTorch's own fused Adam or Adagrad, on whole tensors."""
    kind = torch.optim.Adam if setting["optimizer"] == "adam" else torch.optim.Adagrad
    return kind(parameters, lr=setting["lr"], fused=True)


class WideNetwork:
    """Weights float32 [F, H] and [C, H], ReLU between them."""

    def __init__(self, problem: Problem, setting: Setting, seed: int) -> None:
        """Initialise the first layer from N(0, setting["start"]), the output layer as nn.Linear."""
        torch.manual_seed(seed)
        widths = (problem.train.features, *problem.hidden, problem.outputs)
        (features, width), (_, outputs) = pairwise(widths)
        self.first = setting["start"] * torch.randn(features, width)
        self.first_bias = nn.Parameter(torch.zeros(width))
        output = nn.Linear(width, outputs)
        self.weight, self.bias = output.weight.detach(), output.bias.detach()
        self._rows = ByRow(self.first, setting)
        self._whole = plain([self.first_bias], setting)

    def hidden(self, batch: WideBatch) -> tuple[Tensor, Tensor]:
        """The hidden layer [B, H], and the batch's rows of `first`, which receive gradients."""
        rows = self.first.index_select(0, batch.features).requires_grad_()
        summed = F.embedding_bag(
            batch.places, rows, batch.offsets, mode="sum", per_sample_weights=batch.values
        )
        return F.relu(summed + self.first_bias), rows

    def learn(self, batch: WideBatch, rows: Tensor) -> None:
        """Update the first layer from its gradients."""
        self._whole.step()
        self.first_bias.grad = None
        assert rows.grad is not None
        self._rows.step(batch.features, rows.grad)

    def scores(self, x: csr_array) -> Tensor:
        """Exact scores of every label: float32[N, C]."""
        with torch.no_grad():
            arrays = (x.indices.astype(np.int64), x.indptr[:-1].astype(np.int64), x.data)
            indices, offsets, values = map(torch.from_numpy, arrays)
            summed = F.embedding_bag(
                indices, self.first, offsets, mode="sum", per_sample_weights=values
            )
            return torch.addmm(self.bias, F.relu(summed + self.first_bias), self.weight.t())


class Gradients(NamedTuple):
    """Gradients of a batch's mean loss: [B, H], [n, H] and [n]."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor


def differentiate(
    hidden: Tensor, scores: Tensor, weight: Tensor, target: tuple[Any, ...]
) -> Gradients:
    """Gradients of softmax over `scores`[B, n]; `target`: (rows, columns, fractions).

    `scores` are overwritten. The gradient of `weight`[n, H] is written to `weight.grad` if that
    exists. Explicit because autograd would pass over the scores several more times.
    """
    rows, columns, fractions = target
    torch.softmax(scores, 1, out=scores)
    scores.index_put_((rows, columns), -fractions, accumulate=True)
    fraction = 1 / len(hidden)
    changed = torch.mm(scores.t(), hidden * fraction, out=weight.grad)
    bias = torch.mv(scores.t(), torch.full((len(hidden),), fraction))
    return Gradients(torch.mm(scores, weight).mul_(fraction), changed, bias)


def precisions(problem: Problem, network: WideNetwork) -> dict[str, float]:
    """P@1, P@3 and P@5 over all test rows."""
    x, y, outputs = problem.test.x, problem.test.y, problem.outputs
    correct = np.zeros(max(TOP))
    block = max(1, SCORES // outputs)
    for start in range(0, len(problem.test), block):
        scores = network.scores(x[start : start + block])
        best = torch.topk(scores, min(max(TOP), outputs)).indices.numpy()
        found = among(best, y[start : start + block])
        correct[: found.shape[1]] += found.sum(axis=0)
    return {f"P@{k}": float(correct[:k].sum() / (k * len(problem.test))) for k in TOP}


def among(labels: NDArray[np.int64], y: csr_array) -> NDArray[np.bool_]:
    """Whether each of labels[N, k] is a label of its row of y[N, C]."""
    rows = np.repeat(np.arange(y.shape[0]), np.diff(y.indptr))
    true = rows * y.shape[1] + y.indices
    return np.isin(np.arange(len(labels))[:, None] * y.shape[1] + labels, true)


def course(
    problem: Problem,
    setting: Setting,
    seed: int,
    watch: Stopwatch,
    make: Callable[..., tuple[WideNetwork, Step]],
) -> None:
    """Train the network of `make(rows, problem, setting, seed)`, after warm-up on another one."""
    torch.set_num_threads(setting["threads"])
    torch.set_flush_denormal(True)
    rows = labelled(problem.train)
    if len(rows) < setting["batch"]:
        raise ValueError(f"expected {setting['batch']} rows with labels; got {len(rows)}")
    random = np.random.default_rng(seed)
    _, step = make(rows, problem, setting, seed)
    for n, each in enumerate(batches(rows, setting["batch"], np.random.default_rng(0))):
        if n == WARM_STEPS:
            break
        step(each)
    network, step = make(rows, problem, setting, seed)

    def error() -> float:
        watch.metrics.append(precisions(problem, network))
        return 1 - watch.metrics[-1]["P@1"]

    watch.start(error)
    while True:
        for each in batches(rows, setting["batch"], random):
            step(each)
            watch.rows += len(each)
            if watch.due and watch.over(error):
                return
