"""Compares a whole training step on the CPU with the peak of the processor.

Measures forward, loss, backward and update of the networks of Ma & Rusu on rows in memory, with one
and with two threads, on their own and as a team, and the same step in PyTorch if it is installed.
Only the operations of the three matrix products count.

    scripts/bench cpu_step --json out.json
    scripts/bench cpu_step --networks 54-512x3-7 --batches 16 --repetitions 3

Prints one line per network, optimizer and batch size of a thread: the fractions of the peak
(share_1, share_2), the rows per second, those of a team with as many rows for each member, their
ratio to twice the rows per second of one thread (team_over_two_alone), and the ratio to PyTorch.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.common import arguments, report
from benchmarks.common.peak import aligned, fraction_of_peak
from hogbatch.config import optimizers
from hogbatch.data.batch import dense_inputs, single_labels
from hogbatch.kernels.contract import SOFTMAX, TOTALS, Hyper
from hogbatch.kernels.cpu import network as compiled, team
from hogbatch.kernels.cpu.barrier import new_barrier, own_lines
from hogbatch.model.network import Network

Work = Callable[[], None]
NETWORKS = {
    "300-512x8-2": (300, (512,) * 8, 2),
    "54-512x3-7": (54, (512,) * 3, 7),
}
ROWS = 1 << 14  # of the data set
RATE = 1e-4  # low enough that all numbers stay finite
LEASE_ROWS = 4096  # approximately
MEMBERS = 2  # of a team


def flops_per_row(features: int, hidden: tuple[int, ...], outputs: int) -> int:
    """Multiplications and additions of forward, backward (except to the inputs) and update."""
    widths = (features, *hidden, outputs)
    weights = [a * b for a, b in pairwise(widths)]
    return 2 * (3 * sum(weights) - weights[0])


class CpuStep:
    """A network, its data, and the work of each thread on it."""

    def __init__(self, name: str, activation: str, optimizer: str = "sgd") -> None:
        self.features, self.hidden, self.outputs = NETWORKS[name]
        random = np.random.default_rng(0)
        self.network = Network.build(
            self.features, self.hidden, self.outputs, activation, "softmax"
        )
        self.params = aligned(np.zeros(self.network.parameters, np.float32))
        for tensor in self.network.tensors():
            spread = 1 / np.sqrt(tensor.shape[0])
            tensor.view(self.params)[...] = random.normal(0, spread, tensor.shape)
        self.x = random.normal(size=(ROWS, self.features)).astype(np.float32)
        self.y = random.integers(0, self.outputs, ROWS).astype(np.float32)
        self.activation = activation
        self.flops = flops_per_row(self.features, self.hidden, self.outputs)
        self.optimizer = optimizers.OPTIMIZERS[optimizer]

    def lease(self, batch: int, seed: int) -> tuple[Work, int]:
        """A function that trains on some rows in batches, and the number of rows."""
        train_arguments, rows = self._arguments(batch, seed)

        def work() -> None:
            compiled.train(*train_arguments, *self._own())

        return work, rows

    def team_lease(self, batch: int) -> tuple[list[Work], int]:
        """The functions of the members of a team, for batches of the team; the number of rows."""
        train_arguments, rows = self._arguments(batch, seed=0)
        size = compiled.layer_starts(train_arguments[0].table, False, batch)[-1]
        memory = new_barrier(), own_lines(1), *(aligned(np.zeros(size, np.float32)) for _ in "ab")
        shared = team.Team(MEMBERS, *memory)

        def work(member: int) -> None:
            team.train(*train_arguments, *self._own(), shared, member)

        return [partial(work, member) for member in range(MEMBERS)], rows

    def _arguments(self, batch: int, seed: int) -> tuple[tuple[Any, ...], int]:
        """The first arguments of a training loop, and the number of rows."""
        rows = max(batch, LEASE_ROWS // batch * batch)
        order = np.random.default_rng(seed).permutation(ROWS)[:rows].astype(np.int64)
        first, second = (aligned(np.zeros(self._slot_size(n), np.float32)) for n in range(2))
        plan = np.array(self.network.layer_views(), np.int64)
        model = compiled.ModelView(
            plan, self.params, first, second, np.zeros(1, np.int64), first, second
        )
        lease = compiled.BatchSettings(batch, SOFTMAX, self.optimizer.kind, 1, 1)
        hyper = Hyper(RATE, 0.0, self.optimizer.momentum, self.optimizer.beta2, 1e-8)
        return (model, dense_inputs(self.x), single_labels(self.y), order, lease, hyper), rows

    def _slot_size(self, number: int) -> int:
        return self.network.parameters if number < self.optimizer.slots else 0

    def _own(self) -> tuple[Any, ...]:
        """Arguments of a training loop that each thread has of its own: head, fence, totals."""
        head = np.full(self.features + 16, -1, np.int32)
        return head, np.ones(8, np.int64), np.zeros(TOTALS)


def torch_speed(step: CpuStep, batch: int, threads: int, seconds: float = 1.0) -> float | None:
    """Rows per second of the same step in PyTorch; None if it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(threads)
    nonlinear = {"relu": torch.nn.ReLU, "sigmoid": torch.nn.Sigmoid}[step.activation]
    widths = (step.features, *step.hidden)
    layers: list[Any] = []
    for a, b in pairwise(widths):
        layers += [torch.nn.Linear(a, b), nonlinear()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], step.outputs))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    x, y = torch.from_numpy(step.x), torch.from_numpy(step.y.astype(np.int64))
    done, start = 0, 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or done < 4 * batch:
        if start + batch > ROWS:
            start = 0
        if done == 2 * batch:  # the first two batches are warm-up
            began = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(
            model(x[start : start + batch]), y[start : start + batch]
        )
        loss.backward()
        optimizer.step()
        start, done = start + batch, done + batch
    return (done - 2 * batch) / (time.perf_counter() - began)


def measure(
    name: str, activation: str, optimizer: str, batch: int, repetitions: int
) -> dict[str, Any]:
    """One result: a network, activation, optimizer and batch size."""
    step = CpuStep(name, activation, optimizer)
    line: dict[str, Any] = {"network": name, "activation": activation}
    line |= {"optimizer": optimizer, "batch": batch}
    for threads in (1, 2):
        works, rows = zip(*(step.lease(batch, seed) for seed in range(threads)), strict=True)
        fraction, gflops = fraction_of_peak(works, sum(rows) * step.flops, repetitions)
        line[f"share_{threads}"] = round(fraction, 3)
        line[f"rows_per_second_{threads}"] = round(gflops * 1e9 / step.flops)
    members, rows_of_team = step.team_lease(MEMBERS * batch)
    fraction, gflops = fraction_of_peak(members, rows_of_team * step.flops, repetitions)
    line["share_team"] = round(fraction, 3)
    line["rows_per_second_team"] = round(gflops * 1e9 / step.flops)
    alone = MEMBERS * line["rows_per_second_1"]
    line["team_over_two_alone"] = round(line["rows_per_second_team"] / alone, 2)
    if not np.isfinite(step.params).all():
        raise SystemExit(f"{name}: the parameters are no longer finite; lower RATE")
    speeds = [torch_speed(step, batch, threads) for threads in (1, 2) if optimizer == "sgd"]
    known = [speed for speed in speeds if speed is not None]
    line["torch_rows_per_second"] = round(max(known)) if known else None
    if known:
        best = max(line["rows_per_second_1"], line["rows_per_second_2"])
        line["over_torch"] = round(best / max(known), 1)
    return line


def main() -> None:
    """Measure and print."""
    parser = arguments.parser("cpu_step", __doc__)
    add, networks = parser.add_argument, list(NETWORKS)
    batches = [1 << n for n in range(9)]
    add("--networks", type=arguments.names(networks), default=networks, help=", ".join(networks))
    add("--activation", default="relu", choices=("relu", "sigmoid"), help="hidden layers")
    add("--optimizer", default="sgd", choices=("sgd", "adagrad"), help="PyTorch: only with sgd")
    add(
        "--batches",
        type=arguments.positive_list,
        default=batches,
        metavar="ROWS,...",
        help="batch sizes (default: powers of two from 1 to 256)",
    )
    arguments.add_number(parser, "--repetitions", 15, "measurements of each step")
    arguments.add_json(parser)
    options = parser.parse_args()
    results = []
    for name in options.networks:
        for batch in options.batches:
            settings = name, options.activation, options.optimizer, batch, options.repetitions
            results.append(measure(*settings))
            print(results[-1], flush=True)
    report.write(options.json, results)


if __name__ == "__main__":
    main()
