"""How close is a whole training step on the CPU to the peak of the processor?

Measures forward, loss, backward and update of the networks of Ma & Rusu on rows in memory, with one
and with two threads, and the same step in PyTorch if it is installed. Only the operations of the
three matrix products count.

    scripts/bench cpu_step --json out.json
    scripts/bench cpu_step --networks 54-512x3-7 --batches 16 --repetitions 3

Prints one line per network and batch size: the fractions of the peak (share_1, share_2), the rows
per second, and the ratio to PyTorch.
"""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.common import arguments, report
from benchmarks.common.peak import aligned, fraction_of_peak
from hogbatch.data.batch import dense_inputs, single_labels
from hogbatch.kernels.contract import SGD, SOFTMAX, TOTALS, Hyper
from hogbatch.kernels.cpu import network as compiled
from hogbatch.model.network import Network

NETWORKS = {
    "300-512x8-2": (300, (512,) * 8, 2),
    "54-512x3-7": (54, (512,) * 3, 7),
}
ROWS = 1 << 14  # of the data set
RATE = 1e-4  # low enough that all numbers stay finite
LEASE_ROWS = 4096  # approximately


def flops_per_row(features: int, hidden: tuple[int, ...], outputs: int) -> int:
    """Multiplications and additions of forward, backward (except to the inputs) and update."""
    widths = (features, *hidden, outputs)
    weights = [a * b for a, b in pairwise(widths)]
    return 2 * (3 * sum(weights) - weights[0])


class CpuStep:
    """A network, its data, and the work of each thread on it."""

    def __init__(self, name: str, activation: str) -> None:
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

    def lease(self, batch: int, seed: int) -> tuple[Callable[[], None], int]:
        """A function that trains on some rows in batches, and the number of rows."""
        rows = max(batch, LEASE_ROWS // batch * batch)
        order = np.random.default_rng(seed).permutation(ROWS)[:rows].astype(np.int64)
        none = np.empty(0, np.float32)
        steps, totals = np.zeros(1, np.int64), np.zeros(TOTALS)
        plan = np.array(self.network.layer_views(), np.int64)
        model = compiled.ModelView(plan, self.params, none, none, steps, none, none)
        inputs, labels = dense_inputs(self.x), single_labels(self.y)
        lease = compiled.BatchSettings(batch, SOFTMAX, SGD, 1, 1)
        hyper = Hyper(RATE, 0.0, 0.0, 0.0, 0.0)
        head, fence = np.full(self.features + 16, -1, np.int32), np.ones(8, np.int64)

        def work() -> None:
            compiled.train(model, inputs, labels, order, lease, hyper, head, fence, totals)

        return work, rows


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


def measure(name: str, activation: str, batch: int, repetitions: int) -> dict[str, Any]:
    """One result: a network, activation and batch size."""
    step = CpuStep(name, activation)
    line: dict[str, Any] = {"network": name, "activation": activation, "batch": batch}
    for threads in (1, 2):
        works, rows = zip(*(step.lease(batch, seed) for seed in range(threads)), strict=True)
        fraction, gflops = fraction_of_peak(works, sum(rows) * step.flops, repetitions)
        line[f"share_{threads}"] = round(fraction, 3)
        line[f"rows_per_second_{threads}"] = round(gflops * 1e9 / step.flops)
    if not np.isfinite(step.params).all():
        raise SystemExit(f"{name}: the parameters are no longer finite; lower RATE")
    speeds = [torch_speed(step, batch, threads) for threads in (1, 2)]
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
    add(
        "--batches",
        type=arguments.positive_list,
        default=batches,
        metavar="ROWS,...",
        help="batch sizes (default: powers of two from 1 to 256)",
    )
    add("--repetitions", type=int, default=15, help="measurements of each step (default: 15)")
    arguments.add_json(parser)
    given = parser.parse_args()
    results = []
    for name in given.networks:
        for batch in given.batches:
            results.append(measure(name, given.activation, batch, given.repetitions))
            print(results[-1], flush=True)
    report.write(given.json, results)


if __name__ == "__main__":
    main()
