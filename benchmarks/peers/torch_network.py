"""Network, step and batches of the PyTorch peers; importing this module imports torch."""

from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.peers.contract import MANY_FEATURES, Matrix, Problem, Setting, dense, loss_of

WARM_STEPS = 3


def build(problem: Problem, form: str, seed: int) -> nn.Module:
    """The network; with form "bag" its input is (indices, offsets, values)."""
    torch.manual_seed(seed)
    widths = (problem.train.features, *problem.hidden, problem.outputs)
    layers: list[Any] = [nn.Linear(fan_in, width) for fan_in, width in pairwise(widths)]
    if problem.linear:
        nn.init.zeros_(layers[0].weight)
        nn.init.zeros_(layers[0].bias)
    if form == "bag":
        layers[0] = Bag(layers[0])
    between = [part for layer in layers for part in (layer, nn.ReLU())]
    return nn.Sequential(*between[:-1])


class Bag(nn.Module):
    """`linear` for sparse rows: the sum of value times weight row, plus bias."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().T.contiguous()
        many = len(weight) > MANY_FEATURES
        self.rows = nn.EmbeddingBag.from_pretrained(weight, freeze=False, mode="sum", sparse=many)
        self.bias = nn.Parameter(linear.bias.detach().clone())

    def forward(self, row: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        """Scores of rows given as (indices, offsets, values)."""
        indices, offsets, values = row
        found: Tensor = self.rows(indices, offsets, per_sample_weights=values) + self.bias
        return found


def stepper(problem: Problem, network: Any, setting: Setting) -> Callable[[Any, Any], None]:
    """A function that makes one step; the loss is the mean over rows of the sum over labels."""
    adam = setting.get("optimizer") == "adam"
    bags = [p for m in network.modules() if getattr(m, "sparse", False) for p in m.parameters()]
    rest = [p for p in network.parameters() if not any(p is bag for bag in bags)]
    plain, touched = (
        (torch.optim.Adam, torch.optim.SparseAdam) if adam else (torch.optim.SGD, torch.optim.SGD)
    )
    optimizers: list[Any] = [plain(rest, lr=setting["lr"], fused=True)]
    if bags:
        optimizers.append(touched(bags, lr=setting["lr"]))

    def step(inputs: Any, targets: Any) -> None:
        scores = network(inputs)
        if problem.loss == "softmax":
            loss = F.cross_entropy(scores, targets)
        else:
            total = F.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
            loss = total / len(targets)
        network.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()

    return step


def warm_up(problem: Problem, setting: Setting, x: Matrix, y: Any) -> None:
    """Make some steps on a network that is discarded."""
    step = stepper(problem, build(problem, setting["form"], 0), setting)
    random = np.random.default_rng(0)
    for inputs, targets in islice(batches(x, y, setting["batch"], random), WARM_STEPS):
        step(inputs, targets)


def batches(x: Any, y: Any, size: int, random: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    """One epoch, in a new order; an incomplete last batch is left out."""
    order = random.permutation(len(y))
    x, targets = x[order], torch.from_numpy(y[order])
    targets = targets.long() if _classes(y) else targets.reshape(len(y), -1)
    for start in range(0, len(y) - size + 1, size):
        rows = slice(start, start + size)
        yield tensors(x, rows), targets[rows]


def _classes(y: Any) -> bool:
    """Whether labels are the numbers of more than two classes."""
    return y.ndim == 1 and bool(y.max() > 1)


def tensors(x: Any, rows: slice) -> Any:
    """Rows for `build`'s network: a tensor, or (indices, offsets, values)."""
    if not isinstance(x, csr_array):
        return torch.from_numpy(x[rows])
    bounds = x.indptr[rows.start : rows.stop + 1]
    stored = slice(bounds[0], bounds[-1])
    return (
        torch.from_numpy(x.indices[stored]),
        torch.from_numpy((bounds[:-1] - bounds[0]).astype(np.int32)),
        torch.from_numpy(x.data[stored]),
    )


def in_form(x: Any, form: str) -> Any:
    """`x` dense or as it is."""
    return dense(x) if form == "dense" else x


def evaluation(problem: Problem, network: Any, form: str) -> Callable[[], float]:
    """A function that computes the test loss."""
    x = in_form(problem.test.x, form)

    def scores(rows: slice) -> Any:
        with torch.no_grad():
            return network(tensors(x, rows)).numpy()

    return lambda: loss_of(problem, scores)
