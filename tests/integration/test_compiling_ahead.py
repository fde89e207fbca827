"""The first run on a machine: two processes compile different kernels."""

import os
import subprocess
import sys

import pytest

from hogbatch.machine.linux import read_topology
from tests.support.fault_injection import WITHIN_S

PROGRAM = """
import hogbatch
from hogbatch.kernels.cpu import losses, network
hogbatch.train("a9a", epochs=1, hidden=(8,), verbose=False)
for kernel in (losses.loss_gradient.for_kernels, network.evaluate.for_python):
    print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""


@pytest.mark.slow
@pytest.mark.skipif(read_topology().threads < 2, reason="needs two cores")
def test_the_second_process_compiles_for_the_arguments_of_workers(tmp_path):
    """Found: kernels for other types, which the worker would compile again."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        # Types of arguments do not depend on how code is optimized.
        env={**os.environ, "HOGBATCH_CACHE": str(tmp_path), "NUMBA_OPT": "1"},
        capture_output=True,
        text=True,
        timeout=5 * WITHIN_S,
        check=True,
    )
    gradient, evaluation = (tuple(map(int, line.split())) for line in done.stdout.splitlines())
    assert evaluation == (1, 0)
    assert sum(gradient) == 1  # (0, 1) if the worker needed it before the other process ended
