"""PyTorch on one GPU: all rows are in device memory, and a step is one launch of a CUDA graph.

Rows are dense (imdb, the widest set, needs 9 GB), because a graph needs fixed shapes, and without a
graph the launches of a step take longer than its kernels. On a CPU, for tests, steps are not
captured.

In addition to the keys of the grid a setting may have "device" ("cuda:0"), "precision" of matrix
products (hogbatch's names), "activation" ("relu" or "sigmoid") and "start" (standard deviation of
the first layer's weights). With the loss multilabel-softmax, the targets of a row are 1/#labels,
and the "loss" of the stopwatch is 1 - P@1.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import chain
from typing import Any

from benchmarks.peers.contract import (
    BLOCK_ROWS,
    Matrix,
    Problem,
    Setting,
    Stopwatch,
    accuracy,
    adam_rates,
    combine,
    dense,
    loss_of,
    sgd_rates,
)

BATCHES = (64, 256, 1024, 4096)
WARM_STEPS = 3
AHEAD = 16  # Python is at most twice as many steps ahead of the device: evaluations are on time
WARM_UP_S = 0.2  # in which a GPU raises its clocks, as long as for hogbatch
# Initialisation as in hogbatch.model.network: with PyTorch's own the loss does not fall.
SIGMOID_GAIN, OUTPUT_GAIN = 10.0, 0.1

NAME = "pytorch-gpu"
PACKAGE = "torch"
PACE: tuple[str, ...] = ()


def grid(problem: Problem) -> list[Setting]:
    """SGD and Adam, batches of 64 to 4,096, with higher rates than on a CPU."""
    sizes = [size for size in BATCHES if size <= len(problem.train)]
    rates = {"sgd": sgd_rates(problem), "adam": adam_rates(problem)}
    return [
        setting
        for name, usual in rates.items()
        for setting in combine(
            optimizer=(name,), batch=sizes, lr=(*usual, 2 * usual[-1], 4 * usual[-1])
        )
    ]


def train(problem: Problem, setting: Setting, seed: int, watch: Stopwatch) -> None:
    """Copying the rows, warm-up, capture and the first order of the rows are not timed."""
    step = GpuStep(problem, setting, seed)
    x = on_device(problem.test.x, step.device)
    step.capture()
    rows_of = batches(step, seed)
    first = next(rows_of)

    def measure() -> float:
        if step.uses_precision_at_1:
            return 1 - accuracy(problem, lambda rows: step.best_labels(x[rows]))
        return loss_of(problem, lambda rows: step.scores(x[rows]))

    watch.start(measure)
    for number, rows in enumerate(chain([first], rows_of)):
        step(rows)
        watch.rows += len(rows)
        if watch.due:
            step.synchronize()
            if watch.over(measure):
                return
        elif number % AHEAD == 0:
            step.limit_lead()


class GpuStep:
    """The network and its optimizer; a call trains on rows[batch] of the training set."""

    def __init__(self, problem: Problem, setting: Setting, seed: int) -> None:
        import torch

        self.device = torch.device(setting.get("device", "cuda:0"))
        self._on_gpu = self.device.type == "cuda"
        if self._on_gpu:
            torch.cuda.set_device(self.device)
        precision = setting.get("precision", "float32")
        torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
        self._bfloat16 = precision == "bfloat16"
        self._softmax = problem.loss == "softmax"
        self.uses_precision_at_1 = problem.loss == "multilabel-softmax"
        self._x = on_device(problem.train.x, self.device)
        self._y = on_device(problem.train.y, self.device)
        self._y = self._y.long() if self._softmax else self._y.reshape(len(self._y), -1)
        if self.uses_precision_at_1:
            self._y /= self._y.sum(1, keepdim=True).clamp(min=1)
        self._network = build(problem, setting, seed).to(self.device)
        parameters, rate = list(self._network.parameters()), setting["lr"]
        self._optimizer: Any = (
            torch.optim.Adam(parameters, lr=rate, fused=True, capturable=self._on_gpu)
            if setting["optimizer"] == "adam"
            else torch.optim.SGD(parameters, lr=rate, fused=True)
        )
        self._rows = torch.zeros(setting["batch"], dtype=torch.int64, device=self.device)
        self._run: Callable[[], None] = self._train
        self._reached: Any = None  # an event of an earlier step

    @property
    def shape(self) -> tuple[int, int]:
        """(number of training rows, batch size)."""
        return len(self._y), len(self._rows)

    def __call__(self, rows: Any) -> None:
        self._rows.copy_(rows)
        self._run()

    def _train(self) -> None:
        """The loss is a mean over rows, a sum over labels; float32 except the matrix products."""
        import torch
        from torch.nn import functional as F

        # Casting the weights is part of the step: a cache of the casts must not outlive it.
        kind = self.device.type
        with torch.autocast(kind, torch.bfloat16, enabled=self._bfloat16, cache_enabled=False):
            scores = self._network(self._x[self._rows])
        scores, targets = scores.float(), self._y[self._rows]
        if self._softmax or self.uses_precision_at_1:
            loss = F.cross_entropy(scores, targets)
        else:
            total = F.binary_cross_entropy_with_logits(scores, targets, reduction="sum")
            loss = total / len(targets)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()

    def scores(self, x: Any) -> Any:
        """Scores [rows, C] as a NumPy array of x[rows, F] on the device."""
        import torch

        with torch.no_grad():
            return self._network(x).cpu().numpy()

    def best_labels(self, x: Any) -> Any:
        """The label with the highest score for each of x[rows, F], as a NumPy array."""
        import torch

        with torch.no_grad():
            labels = self._network(x).argmax(1).cpu().numpy()
        return labels.copy()  # SciPy accepts only index arrays that own their memory

    def synchronize(self) -> None:
        """Wait for the device."""
        import torch

        if self._on_gpu:
            torch.cuda.synchronize(self.device)

    def limit_lead(self) -> None:
        """Wait until the device has reached the step of the previous call; it stays busy."""
        import torch

        if not self._on_gpu:
            return
        if self._reached is not None:
            self._reached.synchronize()
        self._reached = torch.cuda.Event()
        self._reached.record()

    def capture(self) -> None:
        """Capture the step as a graph, and warm up; then restore the parameters."""
        import torch

        before = [parameter.detach().clone() for parameter in self._network.parameters()]
        if self._on_gpu:
            side = torch.cuda.Stream()  # as required by PyTorch's notes on CUDA graphs
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_STEPS):
                    self._train()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._train()
            self._run = graph.replay
            self._warm_up()
        else:
            self._train()
        with torch.no_grad():
            for parameter, value in zip(self._network.parameters(), before, strict=True):
                parameter.copy_(value)
            for state in self._optimizer.state.values():
                for value in state.values():
                    if isinstance(value, torch.Tensor):
                        value.zero_()

    def _warm_up(self) -> None:
        """Replay the step until the device has raised its clocks."""
        end = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < end:
            for _ in range(AHEAD):
                self._run()
            self.synchronize()


def build(problem: Problem, setting: Setting, seed: int) -> Any:
    """The network of the other PyTorch peers, or with sigmoid between its layers."""
    from torch import nn

    from benchmarks.peers import torch_network

    network: Any = torch_network.build(problem, "dense", seed)
    if "start" in setting:
        nn.init.normal_(network[0].weight, std=setting["start"])
    if setting.get("activation") == "sigmoid":
        for number in range(1, len(network), 2):
            network[number] = nn.Sigmoid()
        for number in range(0, len(network), 2):
            gain = SIGMOID_GAIN if number < len(network) - 1 else OUTPUT_GAIN
            nn.init.xavier_normal_(network[number].weight, gain)
            nn.init.zeros_(network[number].bias)
    return network


def batches(step: GpuStep, seed: int) -> Iterator[Any]:
    """Endless row numbers [batch] on the device; full batches, each epoch in a new order."""
    import torch

    rows, size = step.shape
    random = torch.Generator(step.device).manual_seed(seed)
    while True:
        order = torch.randperm(rows, generator=random, device=step.device)
        for start in range(0, rows - size + 1, size):
            yield order[start : start + size]


def on_device(matrix: Matrix, device: Any) -> Any:
    """`matrix` as a dense float32 tensor, copied in blocks because it may not fit on the host."""
    import torch

    full = torch.empty(matrix.shape, dtype=torch.float32, device=device)
    for start in range(0, len(full), BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        full[rows] = torch.from_numpy(dense(matrix[rows]))
    return full


def objection(ordinal: str) -> str | None:
    """Why PyTorch cannot train on GPU `ordinal`, tested in a temporary process; None if it can."""
    for package in ("torch", "scipy"):
        if find_spec(package) is None:
            return f"{package} is not installed"
    question = "import torch; print(torch.__version__, torch.cuda.device_count())"
    answer = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True)
    if answer.returncode:
        return f"torch cannot be imported: {answer.stderr.strip().splitlines()[-1]}"
    version, count = answer.stdout.split()
    return (
        None
        if int(ordinal) < int(count)
        else f"torch {version} cannot use GPU {ordinal}: it finds {count} GPUs"
    )
