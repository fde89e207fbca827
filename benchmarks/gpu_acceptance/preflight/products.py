"""TFLOP/s of matrix products by cuBLAS, as hogbatch calls it: the ceiling of a training step."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu_acceptance.preflight.rig import Rig

PRECISIONS = ("float32", "tf32", "bfloat16")
ROWS = (64, 256, 1024, 4096, 8192, 16384, 32768)
QUICK_ROWS, QUICK_WIDTH = (16,), 32
PRODUCTS = 20  # in a graph, so that the device does not wait for calls from Python
REPETITIONS = 5


def speeds(width: int, rig: Rig) -> dict[str, dict[str, float]]:
    """{precision: {rows: TFLOP/s}} of rows[B, width] times weights[width, width]."""
    from hogbatch.kernels.gpu.cublas import Cublas  # imports CuPy

    width, sizes = (QUICK_WIDTH, QUICK_ROWS) if rig.quick else (width, ROWS)
    random = np.random.default_rng(0)
    weights = rig.device.to_device(random.standard_normal((width, width), np.float32))
    inputs = rig.device.to_device(random.standard_normal((sizes[-1], width), np.float32))
    outputs = rig.device.empty(inputs.shape, np.float32)
    found: dict[str, dict[str, float]] = {}
    for precision in PRECISIONS:
        multiply: Any = Cublas(precision).multiply
        for rows in sizes:
            product = partial(multiply, inputs[:rows], weights, outputs[:rows])
            seconds = graph_seconds(rig, product) / PRODUCTS
            found.setdefault(precision, {})[str(rows)] = 2 * rows * width**2 / seconds / 1e12
    return found


def graph_seconds(rig: Rig, product: Callable[[], object]) -> float:
    """Seconds of PRODUCTS calls of `product`, captured as one graph."""

    def repeated() -> None:
        for _ in range(PRODUCTS):
            product()

    return rig.device_seconds(rig.device.capture(repeated), REPETITIONS)
