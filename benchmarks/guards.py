"""What do the guards against NaN and infinity cost? Rows/s with and without them.

With: the kernels as they are. Without: kernels compiled with checks that accept every number. Each
side has a process of its own, and their passes over the rows alternate, so that other load on the
machine affects both. One thread; data like a9a's and covtype's.

The scan of a copy of the model at each report is added to the cost. It is timed separately and
counted as one scan per second during which training stops, although it runs in the background.

    scripts/bench guards --json out.json

Prints the speed of a scan and one line per problem: rows/s with and without guards, the relative
cost with its quartiles, the milliseconds of a scan, and the total cost.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import arguments, report

ROOT = Path(__file__).parents[1]
FENCE = 1
SECONDS_BETWEEN_REPORTS = 1.0


class KernelProblem(NamedTuple):
    """A network and its rows: `stored` values per row; dense rows if that equals `features`."""

    rows: int
    features: int
    stored: int
    hidden: tuple[int, ...]
    outputs: int
    loss: str
    batch: int


PROBLEMS = {
    "like a9a, linear, batch 1": KernelProblem(32_561, 123, 14, (), 1, "logistic", 1),
    "like a9a, linear, batch 64": KernelProblem(32_561, 123, 14, (), 1, "logistic", 64),
    "like a9a, 64": KernelProblem(32_561, 123, 14, (64,), 1, "logistic", 16),
    "like covtype, 64": KernelProblem(1 << 15, 54, 54, (64,), 7, "softmax", 16),
    "like covtype, 512x3": KernelProblem(1 << 12, 54, 54, (512,) * 3, 7, "softmax", 64),
    "2000 labels, 128": KernelProblem(1 << 11, 1000, 50, (128,), 2000, "multilabel", 64),
}


def accept(value: Any) -> bool:
    """A check that accepts every value."""
    return True


def unchanged(gradient: Any) -> Any:
    """A check that accepts every gradient."""
    return gradient


def remove_guards() -> None:
    """Replace the guards, before anything is compiled, and with a cache used by this process only.

    A comparison in each step of a sparse layer remains, because it is not compiled by Numba.
    """
    from hogbatch.jit import kernel
    from hogbatch.kernels.cpu import losses

    losses.finite = losses.all_finite = kernel(accept)
    from hogbatch.kernels.cpu import rules

    rules.sane = kernel(unchanged)


def passes(problem: KernelProblem) -> tuple[Callable[[], None], Callable[[], None]]:
    """A function that trains on all rows once, and one that scans a copy of the model."""
    from hogbatch.checkpoint.snapshots import ModelCopy
    from hogbatch.data.batch import csr_inputs, dense_inputs, multi_labels, single_labels
    from hogbatch.kernels.contract import LOSSES, TOTALS, Hyper
    from hogbatch.kernels.cpu.loops import loop_for
    from hogbatch.kernels.cpu.model import BatchSettings, ModelView
    from hogbatch.model.network import Network
    from hogbatch.model.optimizers import OPTIMIZERS
    from hogbatch.store.model import SharedModel

    random, (rows, features, stored, hidden, outputs, loss, batch) = (
        np.random.default_rng(0),
        problem,
    )
    network, spec = Network.build(features, hidden, outputs, "relu", loss), OPTIMIZERS["adagrad"]
    if stored == features:
        inputs = dense_inputs(random.standard_normal((rows, features), np.float32))
    else:
        indices = np.sort(np.argsort(random.random((rows, features)))[:, :stored]).astype(np.int32)
        values = np.ones(rows * stored, np.float32)
        inputs = csr_inputs(np.arange(rows + 1) * stored, indices.ravel(), values)
    if loss == "multilabel":
        labels = multi_labels(np.arange(rows + 1), random.integers(0, outputs, rows, np.int32))
    else:
        labels = single_labels(random.integers(0, max(2, outputs), rows).astype(np.float32))
    params, sums = (np.zeros(network.parameters, np.float32) for _ in range(2))
    network.initialise(params, seed=0)
    counts = [np.zeros(1, np.int64) for _ in range(2)]
    shared = SharedModel(params, sums, np.empty(0, np.float32), *counts)
    slots = shared.first, shared.second
    model = ModelView(np.array(network.layer_views()), params, *slots, shared.steps, *slots)
    lease = BatchSettings(batch, LOSSES[loss], spec.kind, FENCE, 1)
    hyper = Hyper(1e-4, 0.0, spec.momentum, spec.beta2, spec.epsilon)
    order, fence = random.permutation(rows), np.full(8, FENCE)
    head, totals = np.full(network.layer_views()[0].fan_in, -1, np.int32), np.zeros(TOTALS)

    sparse = len(inputs.indptr) > 0
    loop = loop_for(network.layer_views(), sparse=sparse, hashed=False)

    def train() -> None:
        loop.train(model, inputs, labels, order, lease, hyper, head, fence, totals)

    def scan_model() -> None:
        if where := ModelCopy.of(shared).not_finite(network):
            raise ValueError(f"the model is not finite at {where}")

    return train, scan_model


def serve(name: str, guarded: bool) -> None:
    """Train or scan once for each line of stdin, and print the seconds."""
    if not guarded:
        remove_guards()
    train, scan_model = passes(PROBLEMS[name])
    train()  # compiles
    for line in sys.stdin:
        work = scan_model if line.strip() == "scan" else train
        began = time.perf_counter()
        work()
        print(time.perf_counter() - began, flush=True)


class Side:
    """One of the two processes, with or without guards."""

    def __init__(self, name: str, guarded: bool, cache: str) -> None:
        command = [
            sys.executable,
            "-m",
            "benchmarks.guards",
            "--serve",
            name,
            "--guarded",
            str(int(guarded)),
        ]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "HOGBATCH_CACHE": cache},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, work: str = "train") -> float:
        """The seconds of one pass, or of one "scan"."""
        assert self._process.stdin and self._process.stdout
        print(work, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def measure(name: str, pairs: int, cache: str) -> dict[str, Any]:
    """Alternate passes; the cost of the row guard is the median ratio with / without, minus 1."""
    sides = [Side(name, guarded, f"{cache}/{guarded}") for guarded in (True, False)]
    try:
        for side in sides:
            side.seconds()  # wait until both are ready
        found = []
        for turn in range(pairs):
            order = sides if turn % 2 else sides[::-1]
            taken = {side: side.seconds() for side in order}
            found.append([taken[side] for side in sides])
        scan_s = statistics.median(sides[0].seconds("scan") for _ in range(pairs))
    finally:
        for side in sides:
            side.close()
    rows = PROBLEMS[name].rows
    ratios = sorted(with_guards / without for with_guards, without in found)
    return {
        "problem": name,
        "rows_per_s_with": rows / statistics.median(each[0] for each in found),
        "rows_per_s_without": rows / statistics.median(each[1] for each in found),
        "cost": statistics.median(ratios) - 1 + scan_s / SECONDS_BETWEEN_REPORTS,
        "row_guard": statistics.median(ratios) - 1,
        "row_guard_quartiles": [ratios[len(ratios) // 4] - 1, ratios[-1 - len(ratios) // 4] - 1],
        "look_seconds": scan_s,
        "pairs": pairs,
    }


def scan() -> dict[str, Any]:
    """GB/s of a scan of a model of 400 MB on one core, and of NumPy's isfinite."""
    from hogbatch.store.scan import first_not_finite

    values = np.random.default_rng(0).standard_normal(100_000_000, np.float32)
    ways: dict[str, Callable[[], bool]] = {
        "first_not_finite": lambda: first_not_finite(values) is None,
        "np.isfinite": lambda: bool(np.isfinite(values).all()),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(7):
        for name, way in ways.items():
            began = time.perf_counter()
            assert way()
            best[name] = min(best[name], time.perf_counter() - began)
    return {"problem": "scan, GB/s"} | {n: values.nbytes / s / 1e9 for n, s in best.items()}


def parse() -> argparse.Namespace:
    """The flags."""
    parser = arguments.parser("guards", __doc__)
    parser.add_argument("--pairs", type=int, default=201, help="passes of each side (default: 201)")
    arguments.add_json(parser)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--guarded", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Print one line for each problem."""
    given = parse()
    if given.serve:
        serve(given.serve, bool(given.guarded))
        return
    results = [scan()]
    print("  ".join(f"{k} {v:.1f}" if k != "problem" else v for k, v in results[0].items()))
    with tempfile.TemporaryDirectory() as cache:
        for name in PROBLEMS:
            found = measure(name, given.pairs, cache)
            results.append(found)
            low, high = found["row_guard_quartiles"]
            print(
                f"{name:28} {found['rows_per_s_with']:12,.0f} rows/s with, "
                f"{found['rows_per_s_without']:12,.0f} without: {found['row_guard']:+.1%} "
                f"({low:+.1%} to {high:+.1%}), a scan {1e3 * found['look_seconds']:.2f} ms, "
                f"in total {found['cost']:+.1%}",
                flush=True,
            )
    report.write(given.json, results, pairs=given.pairs)


if __name__ == "__main__":
    main()
