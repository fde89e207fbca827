"""TFLOP/s of matrix products by cuBLAS, as hogbatch calls it: the ceiling of a training step."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu_acceptance.preflight.gpu import Gpu
from hogbatch.kernels.gpu.cuda_device import CudaDevice

PRECISIONS = ("float32", "tf32", "bfloat16")
ROWS = (64, 256, 1024, 4096, 8192, 16384, 32768)
QUICK_ROWS, QUICK_WIDTH = (16,), 32
PRODUCTS = 20  # in a graph, so that the device does not wait for calls from Python
REPETITIONS = 5


def speeds(width: int, gpu: Gpu) -> dict[str, dict[str, float]]:
    """{precision: {rows: TFLOP/s}} of rows[B, width] times weights[width, width]."""
    from hogbatch.kernels.gpu.cublas import Cublas  # imports CuPy

    width, sizes = (QUICK_WIDTH, QUICK_ROWS) if gpu.quick else (width, ROWS)
    found: dict[str, dict[str, float]] = {}
    for precision in PRECISIONS:
        multiply, device = Cublas(precision).multiply, CudaDevice(0, precision)
        weights, inputs = (random_operand(device, rows, width) for rows in (width, sizes[-1]))
        outputs = device.empty(inputs.shape, inputs.dtype)
        for rows in sizes:
            product = partial(multiply, inputs[:rows], weights, outputs[:rows])
            seconds = graph_seconds(gpu, product) / PRODUCTS
            found.setdefault(precision, {})[str(rows)] = 2 * rows * width**2 / seconds / 1e12
    return found


def random_operand(device: CudaDevice, rows: int, width: int) -> Any:
    """Random numbers[rows, width] in the type of the operands of the device's products."""
    values = np.random.default_rng(rows).standard_normal((rows, width), np.float32)
    operands = device.empty(values.shape, device.kernels.operand_type(values.dtype))
    device.kernels.to_operands(device.to_device(values), operands)
    return operands


def graph_seconds(gpu: Gpu, product: Callable[[], object]) -> float:
    """Seconds of PRODUCTS calls of `product`, captured as one graph."""

    def repeated() -> None:
        for _ in range(PRODUCTS):
            product()

    return gpu.device_seconds(gpu.device.capture(repeated), REPETITIONS)
