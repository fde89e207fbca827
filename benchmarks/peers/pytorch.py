"""PyTorch: an MLP, its first layer dense or an EmbeddingBag over the stored values.

One process, one or two threads.
"""

import numpy as np

from benchmarks.peers.contract import (
    Problem,
    Setting,
    Stopwatch,
    adam_rates,
    combine,
    dense,
    forms,
    sgd_rates,
)

NAME = "pytorch"
PACKAGE = "torch"
PACE = ("threads", "form")


def grid(problem: Problem) -> list[Setting]:
    """SGD and Adam, batches of 16 to 1,024."""
    common = {"threads": (1, 2), "form": forms(problem.train)}
    sgd, adam = sgd_rates(problem), adam_rates(problem)
    return [
        *combine(optimizer=("sgd",), batch=(16, 32, 64, 256, 1024), lr=sgd, **common),
        *combine(optimizer=("adam",), batch=(32, 64, 256), lr=adam, **common),
    ]


def train(problem: Problem, setting: Setting, seed: int, watch: Stopwatch) -> None:
    """Train on batches of a new permutation each epoch."""
    import torch

    from benchmarks.peers import torch_network as net

    torch.set_num_threads(setting["threads"])
    torch.set_flush_denormal(True)
    x, y = net.in_form(problem.train.x, setting["form"]), dense(problem.train.y)
    random = np.random.default_rng(seed)
    net.warm_up(problem, setting, x, y)
    network = net.build(problem, setting["form"], seed)
    step = net.stepper(problem, network, setting)
    measure = net.evaluation(problem, network, setting["form"])
    watch.start(measure)
    while True:
        for inputs, targets in net.batches(x, y, setting["batch"], random):
            step(inputs, targets)
            watch.rows += len(targets)
            if watch.due and watch.over(measure):
                return
