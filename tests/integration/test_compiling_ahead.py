"""The first run on a machine: two processes compile different kernels."""

import os
import subprocess
import sys

import pytest

from hogbatch.machine.linux import read_topology
from tests.support.fault_injection import WITHIN_S

PROGRAM = """
import hogbatch
from hogbatch.kernels.cpu import network
hogbatch.train("a9a", epochs=1, hidden=(8,), verbose=False)
statistics = network.evaluate.for_python.stats
assert (sum(statistics.cache_hits.values()), sum(statistics.cache_misses.values())) == (1, 0)
"""
NEEDED_LATE = (  # by the training loop
    "losses.loss_gradient",
    "dense.step_rows",
    "dense.pass_down",
    "dense.scale_rows",
    "dense.activate_backward",
)


@pytest.mark.slow
@pytest.mark.skipif(read_topology().threads < 2, reason="needs two cores")
def test_the_second_process_compiles_for_the_arguments_of_workers(tmp_path):
    """Found: kernels for other types, which the worker would compile again."""
    subprocess.run(
        [sys.executable, "-c", PROGRAM],
        # Types of arguments do not depend on how code is optimized.
        env={**os.environ, "HOGBATCH_CACHE": str(tmp_path), "NUMBA_OPT": "1"},
        capture_output=True,
        timeout=5 * WITHIN_S,
        check=True,
    )
    for name in NEEDED_LATE:  # one file for each list of types
        assert len(list(tmp_path.rglob(f"{name}-*.nbc"))) == 1, name
