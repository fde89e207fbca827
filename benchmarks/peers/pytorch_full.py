"""PyTorch over all of very many labels: sparse rows, one hidden layer, softmax, target 1/#labels.

Every step computes the whole output layer; pytorch_sampled.py computes a part of it. The "loss" of
the stopwatch is 1 - P@1.
"""

from typing import TYPE_CHECKING, Any

from benchmarks.peers.contract import Problem, Rows, Setting, Stopwatch, combine

if TYPE_CHECKING:
    from benchmarks.peers.torch_wide import Step, WideBatch, WideNetwork

RATES = {"adam": (0.0005, 0.001, 0.002, 0.005, 0.01, 0.015), "adagrad": (0.01, 0.02, 0.05, 0.1)}
BATCHES = (64, 128, 256)
# Standard deviations: that of nn.Linear for so many features, and ten times as much. EmbeddingBag's
# default of 1 is worse.
STARTS = (0.01, 0.1)


class PyTorchFull:
    """One process, one or two threads; a step changes only the first layer's rows in the batch."""

    name = "pytorch-full"
    package = "torch"
    pace = ("threads", "form")

    def grid(self, problem: Problem) -> list[Setting]:
        """Adam and Adagrad, with autograd and with an explicit softmax gradient."""
        sizes = [size for size in BATCHES if size <= len(problem.train)]
        common = {"start": STARTS, "threads": (1, 2), "form": ("autograd", "written-out")}
        return [
            setting
            for optimizer, rates in RATES.items()
            for setting in combine(optimizer=(optimizer,), batch=sizes, lr=rates, **common)
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
    weight, bias = network.weight.requires_grad_(), network.bias.requires_grad_()
    optimizer = wide.plain([weight, bias], setting)
    room = torch.empty(setting["batch"], problem.outputs)

    def by_autograd(batch: "WideBatch") -> None:
        hidden, touched = network.hidden(batch)
        loss_of(torch.nn.functional.linear(hidden, weight, bias), batch).backward()
        finish(batch, touched)

    def written_out(batch: "WideBatch") -> None:
        hidden, touched = network.hidden(batch)
        with torch.no_grad():
            scores = torch.addmm(bias, hidden, weight.t(), out=room)
            target = (batch.rows, batch.labels, batch.fractions)
            found = wide.differentiate(hidden, scores, weight, target)
        weight.grad, bias.grad = found.weight, found.bias
        hidden.backward(found.hidden)
        finish(batch, touched)

    def finish(batch: "WideBatch", touched: Any) -> None:
        optimizer.step()
        if setting["form"] == "autograd":
            optimizer.zero_grad()
        network.learn(batch, touched)

    return network, by_autograd if setting["form"] == "autograd" else written_out


def loss_of(scores: Any, batch: "WideBatch") -> Any:
    """Mean of log(sum(exp(s))) - sum over true labels of s/#labels, cheap for autograd."""
    chosen = (scores[batch.rows, batch.labels] * batch.fractions).sum()
    return scores.logsumexp(1).mean() - chosen / len(batch)


PEER = PyTorchFull()
