"""What do the guards against numbers that are not finite cost? Rows/s with and without them.

With: the kernels as they are. Without: kernels compiled with tests that find everything finite.
Each has a process of its own, which both wait for their turn: passes over the rows alternate, so
that whatever else the machine does meets both. One thread; data like a9a's and covtype's.

To that comes a look through a copy of the model at each report. It is timed by itself, and counted
as if there were a report each second and training stood still for it; it goes on beside it.

    scripts/bench guards --json out.json
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

import about
import numpy as np

FENCE = 1
SECONDS_BETWEEN_REPORTS = 1.0


class Problem(NamedTuple):
    """A network, and rows for it; `stored` values a row, all of them where it is `features`."""

    rows: int
    features: int
    stored: int
    hidden: tuple[int, ...]
    outputs: int
    loss: str
    batch: int


PROBLEMS = {
    "like a9a, linear, batch 1": Problem(32_561, 123, 14, (), 1, "logistic", 1),
    "like a9a, linear, batch 64": Problem(32_561, 123, 14, (), 1, "logistic", 64),
    "like a9a, 64": Problem(32_561, 123, 14, (64,), 1, "logistic", 16),
    "like covtype, 64": Problem(1 << 15, 54, 54, (64,), 7, "softmax", 16),
    "like covtype, 512x3": Problem(1 << 12, 54, 54, (512,) * 3, 7, "softmax", 64),
    "2000 labels, 128": Problem(1 << 11, 1000, 50, (128,), 2000, "multilabel", 64),
}


def accept(value: Any) -> bool:
    """What a kernel calls that looks for nothing."""
    return True


def unchanged(gradient: Any) -> Any:
    """What a step calls that takes any gradient."""
    return gradient


def leave_out_the_guards() -> None:
    """Before anything is compiled, and with a cache that nobody else uses.

    What stays is a comparison in each step of a sparse layer, which is not Numba's.
    """
    from hogbatch.jit import kernel
    from hogbatch.kernels.cpu import losses

    losses.finite = losses.all_finite = kernel(accept)
    from hogbatch.kernels.cpu import rules

    rules.sane = kernel(unchanged)


def passes(problem: Problem) -> tuple[Callable[[], None], Callable[[], None]]:
    """What trains on all rows once, and what looks through a copy of the model."""
    from hogbatch.checkpoint.snapshots import ModelCopy
    from hogbatch.data.batch import csr_inputs, dense_inputs, multi_labels, single_labels
    from hogbatch.kernels.contract import LOSSES, TOTALS, Hyper
    from hogbatch.kernels.cpu import network as compiled
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
    model = compiled.ModelView(np.array(network.plan()), params, *slots, shared.steps, *slots)
    lease = compiled.BatchSettings(batch, LOSSES[loss], spec.kind, FENCE, 1)
    hyper = Hyper(1e-4, 0.0, spec.momentum, spec.beta2, spec.epsilon)
    order, fence = random.permutation(rows), np.full(8, FENCE)
    head, totals = np.full(network.plan()[0].fan_in, -1, np.int32), np.zeros(TOTALS)

    def train() -> None:
        compiled.train(model, inputs, labels, order, lease, hyper, head, fence, totals)

    def look() -> None:
        if where := ModelCopy.of(shared).not_finite(network):
            raise ValueError(f"the model is not finite at {where}")

    return train, look


def serve(name: str, guarded: bool) -> None:
    """Train, or look, once for each line that is read, and say how long it took."""
    if not guarded:
        leave_out_the_guards()
    train, look = passes(PROBLEMS[name])
    train()  # compiles
    for line in sys.stdin:
        work = look if line.strip() == "look" else train
        began = time.perf_counter()
        work()
        print(time.perf_counter() - began, flush=True)


class Side:
    """One of the two processes."""

    def __init__(self, name: str, guarded: bool, cache: str) -> None:
        command = [sys.executable, __file__, "--serve", name, "--guarded", str(int(guarded))]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "HOGBATCH_CACHE": cache},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def seconds(self, work: str = "train") -> float:
        """Of a pass, or of a "look"."""
        assert self._process.stdin and self._process.stdout
        print(work, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def measure(name: str, pairs: int, cache: str) -> dict[str, Any]:
    """Alternate passes; the row guard costs the median over pairs of with / without, less 1."""
    sides = [Side(name, guarded, f"{cache}/{guarded}") for guarded in (True, False)]
    try:
        for side in sides:
            side.seconds()  # both are ready now
        found = []
        for turn in range(pairs):
            order = sides if turn % 2 else sides[::-1]
            taken = {side: side.seconds() for side in order}
            found.append([taken[side] for side in sides])
        look = statistics.median(sides[0].seconds("look") for _ in range(pairs))
    finally:
        for side in sides:
            side.close()
    rows = PROBLEMS[name].rows
    ratios = sorted(with_guards / without for with_guards, without in found)
    return {
        "problem": name,
        "rows_per_s_with": rows / statistics.median(each[0] for each in found),
        "rows_per_s_without": rows / statistics.median(each[1] for each in found),
        "cost": statistics.median(ratios) - 1 + look / SECONDS_BETWEEN_REPORTS,
        "row_guard": statistics.median(ratios) - 1,
        "row_guard_quartiles": [ratios[len(ratios) // 4] - 1, ratios[-1 - len(ratios) // 4] - 1],
        "look_seconds": look,
        "pairs": pairs,
    }


def scan() -> dict[str, Any]:
    """GB/s of a look through a model of 400 MB on one core, beside NumPy's own."""
    from hogbatch.store.scan import first_not_finite

    values = np.random.default_rng(0).standard_normal(100_000_000, np.float32)
    ways = {
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


def main() -> None:
    """Print one line for each problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=201, help="passes of each side (default: 201)")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--guarded", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
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
                f"({low:+.1%} to {high:+.1%}), a look {1e3 * found['look_seconds']:.2f} ms, "
                f"together {found['cost']:+.1%}",
                flush=True,
            )
    about.write(given.json, results, pairs=given.pairs)


if __name__ == "__main__":
    main()
