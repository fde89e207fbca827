"""PyTorch over all of very many labels: sparse rows, one hidden layer, softmax, target 1/#labels.

Covers: the whole output layer in every step. The clock's "loss" is 1 - P@1.
Does not cover: a part of the output layer (see pytorch_sampled.py).
"""

from typing import TYPE_CHECKING, Any

from peers.contract import Problem, Rows, Setting, Watch, combine

if TYPE_CHECKING:
    from peers.torch_wide import Batch, Network, Step

RATES = {"adam": (0.0005, 0.001, 0.002, 0.005, 0.01, 0.015), "adagrad": (0.01, 0.02, 0.05, 0.1)}
BATCHES = (64, 128, 256)
STARTS = (
    0.01,
    0.1,
)  # of nn.Linear for so many features, and ten times it; EmbeddingBag's 1 is worse


class PyTorchWide:
    """One process, one or two threads; only touched rows of the first layer are changed."""

    name = "pytorch-full"
    package = "torch"
    pace = ("threads", "form")

    def grid(self, problem: Problem) -> list[Setting]:
        """Adam and Adagrad, by autograd and with the softmax's gradient written out."""
        sizes = [size for size in BATCHES if size <= len(problem.train)]
        common = {"start": STARTS, "threads": (1, 2), "form": ("autograd", "written-out")}
        return [
            setting
            for optimizer, rates in RATES.items()
            for setting in combine(optimizer=(optimizer,), batch=sizes, lr=rates, **common)
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
    weight, bias = network.weight.requires_grad_(), network.bias.requires_grad_()
    optimizer = wide.plain([weight, bias], setting)
    room = torch.empty(setting["batch"], problem.outputs)

    def by_autograd(batch: "Batch") -> None:
        hidden, touched = network.hidden(batch)
        loss_of(torch.nn.functional.linear(hidden, weight, bias), batch).backward()
        finish(batch, touched)

    def written_out(batch: "Batch") -> None:
        hidden, touched = network.hidden(batch)
        with torch.no_grad():
            scores = torch.addmm(bias, hidden, weight.t(), out=room)
            target = (batch.rows, batch.labels, batch.fractions)
            found = wide.differentiate(hidden, scores, weight, target)
        weight.grad, bias.grad = found.weight, found.bias
        hidden.backward(found.hidden)
        finish(batch, touched)

    def finish(batch: "Batch", touched: Any) -> None:
        optimizer.step()
        if setting["form"] == "autograd":
            optimizer.zero_grad()
        network.learn(batch, touched)

    return network, by_autograd if setting["form"] == "autograd" else written_out


def loss_of(scores: Any, batch: "Batch") -> Any:
    """Mean of log(sum(exp(s))) - sum over true labels of s/#labels; the cheapest for autograd."""
    chosen = (scores[batch.rows, batch.labels] * batch.fractions).sum()
    return scores.logsumexp(1).mean() - chosen / len(batch)


PEER = PyTorchWide()
