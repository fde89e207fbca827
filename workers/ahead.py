"""Compiling kernels in a second process, on the first run on a machine.

One process compiles one kernel at a time. The worker compiles the training loop; the other process
compiles, at the same time, kernels which that loop needs late, and then the evaluation. The worker
finds them in the cache.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

import numpy as np

from hogbatch.data.batch import Inputs, Labels, read_only
from hogbatch.jit import cache_directory, cache_problem
from hogbatch.kernels.contract import NO_SCORES, TOTALS, Hyper, Slots
from hogbatch.machine.linux import read_topology
from hogbatch.machine.process import collect_rarely, die_with, worker_environment

EVALUATION = {"dense": "network", "wide": "exact", "hashed": "exact"}  # modules, by loop


@contextmanager
def compiling_ahead(loop: str) -> Iterator[Callable[[], object]]:
    """Run the process; yields a function that waits for its end, and ends it in any case.

    There is none for a `loop` that is not in EVALUATION, if its evaluation is in the cache, or on
    one core, because both processes compile some small kernels.
    """
    module = EVALUATION.get(loop)
    known = module and any(cache_directory().rglob(f"{module}.evaluate*.nbi"))
    if not module or known or read_topology().threads < 2 or cache_problem() is not None:
        yield lambda: None
        return
    command = [sys.executable, "-P", "-m", "hogbatch.workers.ahead", str(os.getpid()), loop]
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(
        command, env=worker_environment(), stdin=nowhere, stdout=nowhere, stderr=nowhere
    ) as process:
        try:
            yield process.wait
        finally:
            process.kill()


def main() -> None:
    """Compile kernels for the types of arguments that workers pass to them."""
    parent, loop = sys.argv[1:]
    die_with(int(parent))
    collect_rarely()
    import_module("hogbatch.kernels.cpu.rows")  # the worker begins with other micro-kernels
    from numba import typeof  # here: the worker has not imported it yet

    from hogbatch.kernels.cpu import dense, losses
    from hogbatch.kernels.cpu.model import BatchSettings, ModelView
    from hogbatch.kernels.cpu.tiles import Matrix

    floats, rows, features = (np.empty(0, kind) for kind in ("f4", "i8", "i4"))
    matrix, product, hyper = np.empty((0, 0), "f4"), Matrix(0, 0, 1), Hyper(*[0.0] * 5)
    model = ModelView(np.empty((0, 0), "i8"), floats, floats, floats, rows, floats, floats)
    own = Labels(floats, rows, features, floats)  # of a batch, of the hashed loop
    labels = Labels(*map(read_only, own))
    inputs = Inputs(read_only(matrix), labels.indptr, labels.indices, labels.values)
    totals, targets = np.zeros(TOTALS), own if loop == "hashed" else labels
    settings = BatchSettings(1, 0, 0, 0, 1)
    evaluate = import_module(f"hogbatch.kernels.cpu.{EVALUATION[loop]}").evaluate
    for kernel, arguments in (
        (losses.loss_gradient.for_kernels, (0, targets, rows, rows, 0, matrix, matrix, totals)),
        (dense.step_rows.for_kernels, (0, hyper, floats, 0, 0, Slots(matrix, matrix), matrix)),
        (dense.pass_down.for_kernels, (matrix, product, product, matrix, 0, 0, matrix)),
        (dense.scale_rows.for_kernels, (0, hyper, 0, matrix, matrix, matrix)),
        (dense.activate_backward.for_kernels, (0, matrix, matrix, None)),
        (evaluate.for_python, (model, inputs, labels, rows, settings, rows, totals, NO_SCORES)),
    ):
        kernel.compile(tuple(map(typeof, arguments)))


if __name__ == "__main__":
    main()
