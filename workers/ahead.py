"""Compiling kernels in a second process, on the first run on a machine.

One process compiles one kernel at a time. The worker compiles the training loop; the other process
compiles, at the same time, the gradient of the loss, which that loop needs late, and then the
evaluation. The worker finds both in the cache.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hogbatch.data.batch import Inputs, Labels, read_only
from hogbatch.jit import cache_directory, cache_problem
from hogbatch.kernels.contract import NO_SCORES, TOTALS
from hogbatch.machine.linux import read_topology
from hogbatch.machine.process import die_with, worker_environment


@contextmanager
def compiling_ahead(needed: bool) -> Iterator[Callable[[], object]]:
    """Run the process; yields a function that waits for its end, and ends it in any case.

    There is none if it is not `needed`, if the evaluation is in the cache, or on one core, because
    both processes compile some small kernels.
    """
    known = needed and any(cache_directory().rglob("network.evaluate*.nbi"))
    if not needed or known or read_topology().threads < 2 or cache_problem() is not None:
        yield lambda: None
        return
    command = [sys.executable, "-P", "-m", "hogbatch.workers.ahead", str(os.getpid())]
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(
        command, env=worker_environment(), stdin=nowhere, stdout=nowhere, stderr=nowhere
    ) as process:
        try:
            yield process.wait
        finally:
            process.kill()


def main() -> None:
    """Compile both kernels for the types of arguments that workers pass to them."""
    die_with(int(sys.argv[1]))
    from numba import int64, typeof  # here: the worker has not imported it yet

    from hogbatch.kernels.cpu import losses, network
    from hogbatch.kernels.cpu.model import BatchSettings, ModelView

    def empty(kind: str, dimensions: int = 1) -> Any:
        return np.empty((0,) * dimensions, kind)

    def sealed(kinds: str) -> Any:
        return map(read_only, map(empty, kinds.split()))

    inputs = Inputs(read_only(empty("f4", 2)), *sealed("i8 i4 f4"))
    labels, rows, totals = Labels(*sealed("f4 i8 i4 f4")), empty("i8"), np.zeros(TOTALS)
    scores, floats = empty("f4", 2), empty("f4")
    gradient = labels, rows, rows, 0, scores, scores, totals
    losses.loss_gradient.for_kernels.compile((int64, *map(typeof, gradient)))
    slots = floats, floats
    model = ModelView(empty("i8", 2), floats, *slots, rows, *slots)
    evaluated = model, inputs, labels, rows, BatchSettings(1, 0, 0, 0, 1), rows, totals, NO_SCORES
    network.evaluate.for_python.compile(tuple(map(typeof, evaluated)))


if __name__ == "__main__":
    main()
