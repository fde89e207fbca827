"""PyTorch with a softmax over the labels of a batch and random others, target 1/#labels.

Jean, Cho, Memisevic, Bengio 2015 (arXiv 1412.2007), section 3; log-uniform samples and their
correction by log Q as in TensorFlow's sampled_softmax_loss. One hidden layer with ReLU, Adam.
"""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.contract import Setting, combine

HIDDEN: Final = 128
START: Final = 0.1  # standard deviation of the first layer; nn.Linear's, a tenth of it, is worse
BATCH: Final = 128
SCORES: Final = 1 << 25  # float32 scores per block of a prediction: 128 MiB
GRID: Final = combine(lr=(0.002, 0.005), sample=(500, 2000), epochs=(4, 8, 12), threads=(1,))


class ByRow:
    """Adam on only those rows of `weight` that a batch uses.

    The same as SparseAdam in two thirds of its time, as the rows are distinct.
    """

    def __init__(self, weight: Any, rate: float) -> None:
        import torch

        self.weight, self._rate, self._steps = weight, rate, 0
        self._mean, self._square = torch.zeros_like(weight), torch.zeros_like(weight)

    def step(self, rows: Any, gradient: Any) -> None:
        """Update `weight[rows]`."""
        self._steps += 1
        square = (
            self._square.index_select(0, rows).mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        )
        mean = self._mean.index_select(0, rows).lerp_(gradient, 0.1)
        self._square.index_copy_(0, rows, square)
        self._mean.index_copy_(0, rows, mean)
        unbiased = math.sqrt(1 - 0.999**self._steps)
        change = mean.div_(square.sqrt_().add_(1e-8 * unbiased))
        self.weight.index_add_(
            0, rows, change, alpha=-self._rate * unbiased / (1 - 0.9**self._steps)
        )


class Network:
    """Weights float32 [F, HIDDEN] and [C, HIDDEN]."""

    def __init__(self, features: int, outputs: int, rate: float) -> None:
        import torch

        output = torch.nn.Linear(HIDDEN, outputs)
        first = START * torch.randn(features, HIDDEN)
        tensors = (first, torch.zeros(1, HIDDEN), output.weight.detach(), output.bias.detach())
        self.first, self.first_bias, self.weight, self.bias = (ByRow(t, rate) for t in tensors)

    def hidden(self, x: Any, places: Any, first: Any, bias: Any) -> Any:
        """The hidden layer [B, HIDDEN] of rows x, whose features are `places` of `first`."""
        from torch import from_numpy
        from torch.nn import functional as F

        offsets = from_numpy(x.indptr[:-1].astype(np.int64))
        summed = F.embedding_bag(
            places, first, offsets, mode="sum", per_sample_weights=from_numpy(x.data)
        )
        return F.relu(summed + bias)

    def top(self, x: Any, k: int) -> NDArray[np.int64]:
        """The k labels with the highest scores of each row."""
        import torch

        best, block = [], max(1, SCORES // len(self.weight.weight))
        with torch.no_grad():
            for start in range(0, x.shape[0], block):
                part = x[start : start + block]
                places = torch.from_numpy(part.indices.astype(np.int64))
                hidden = self.hidden(part, places, self.first.weight, self.first_bias.weight)
                scores = torch.addmm(self.bias.weight, hidden, self.weight.weight.t())
                best.append(torch.topk(scores, k).indices.numpy())
        return np.concatenate(best)

    def step(self, x: Any, y: Any, sampled: NDArray[np.int64], log_q: NDArray[np.float32]) -> None:
        """Train on a batch; `sampled` are distinct and contain its labels, `log_q` by label."""
        import torch

        used, places = np.unique(x.indices, return_inverse=True)
        used, chosen = torch.from_numpy(used.astype(np.int64)), torch.from_numpy(sampled)
        first = self.first.weight.index_select(0, used).requires_grad_()
        bias = self.first_bias.weight.clone().requires_grad_()
        hidden = self.hidden(x, torch.from_numpy(places.astype(np.int64)), first, bias)
        many = np.diff(y.indptr)
        rows = torch.from_numpy(np.repeat(np.arange(len(many)), many))
        own = torch.from_numpy(np.searchsorted(sampled, y.indices))
        target = torch.from_numpy(np.repeat(1 / many, many).astype(np.float32))
        with torch.no_grad():  # written out: autograd would pass over the scores several times more
            weight = self.weight.weight.index_select(0, chosen)
            correction = torch.from_numpy(log_q[sampled])
            scores = torch.addmm(self.bias.weight[chosen] - correction, hidden, weight.t())
            scores.index_put_((rows, own), correction[own], accumulate=True)  # are always active
            gradient = torch.softmax(scores, 1)
            gradient.index_put_((rows, own), -target, accumulate=True)
            gradient /= len(many)
        hidden.backward(gradient @ weight)
        self.weight.step(chosen, gradient.t() @ hidden.detach())
        self.bias.step(chosen, gradient.sum(0))
        self.first.step(used, first.grad)
        self.first_bias.step(torch.zeros(1, dtype=torch.int64), bias.grad)


def train(x: Any, y: Any, setting: Setting, seed: int) -> Network:
    """Epochs over the rows with labels, each in a new order."""
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(setting["threads"])
    torch.set_flush_denormal(True)
    random = np.random.default_rng(seed)
    some = np.flatnonzero(np.diff(y.indptr))
    outputs, samples = y.shape[1], setting["sample"]
    network = Network(x.shape[1], outputs, setting["lr"])
    counts = np.bincount(y.indices, minlength=outputs)
    by_rank = np.argsort(-counts, kind="stable")
    drawn = np.empty(outputs)
    drawn[by_rank] = np.log1p(1 / np.arange(1, outputs + 1)) / math.log(outputs + 1)
    absent = samples * np.log1p(-drawn) + BATCH * np.log1p(-np.minimum(counts / len(some), 0.999))
    log_q = np.log(-np.expm1(absent)).astype(np.float32)  # of being in the active set of a batch
    for _ in range(setting["epochs"]):
        order = random.permutation(some)
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            labels = y[rows]
            exponent = random.random(samples) * math.log(outputs + 1)
            ranks = np.minimum(np.exp(exponent).astype(np.int64), outputs) - 1
            active = np.unique(np.concatenate((labels.indices, by_rank[ranks])))
            network.step(x[rows], labels, active, log_q)
    return network
