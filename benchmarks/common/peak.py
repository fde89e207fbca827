"""The peak of the processor: multiply-adds in registers, by one thread or several at once.

Benchmarks of kernels divide their speed by this peak, which is measured between their own
repetitions on the same cores.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import numpy as np
from llvmlite import ir

from hogbatch.jit import kernel
from hogbatch.kernels.cpu import library
from hogbatch.kernels.cpu.intrinsics import address
from hogbatch.kernels.cpu.simd import (
    INT,
    POINTER,
    REGISTERS,
    WIDTH,
    FunctionBuilder,
    Values,
    number,
)

CHAINS = 24 if REGISTERS == 32 else 12  # independent sums: enough to hide the latency of an add
STEPS = 20_000
REPEATS = 10
CORES = sorted(os.sched_getaffinity(0))
FLOPS = 2 * WIDTH * CHAINS * STEPS  # of one call of `multiply_add_in_registers`


def _write(module: ir.Module) -> list[str]:
    w = FunctionBuilder(module, "benchmark_peak", [INT, POINTER])
    steps, cells = w.function.args
    factor = w.load(cells)

    def body(_: ir.Value, sums: Values) -> Values:
        return [w.multiply_add(factor, factor, total) for total in sums]

    totals = w.loop(number(0), steps, 1, [factor] * CHAINS, body)
    while len(totals) > 1:
        totals = [w.build.fadd(totals[0], totals[1]), *totals[2:]]
    w.store(totals[0], cells)
    w.build.ret_void()
    return ["benchmark_peak"]


library.load("benchmark_peak", _write)
_peak = library.function("benchmark_peak", [INT, POINTER])


@kernel
def multiply_add_in_registers(cells):
    """FLOPS operations."""
    _peak((STEPS, address(cells)))


def aligned(array: np.ndarray) -> np.ndarray:
    """A copy of `array` that starts at a cache line, like the shared model."""
    raw = np.empty(array.size + 15, np.float32)
    start = -(raw.ctypes.data // 4) % 16
    copy = raw[start : start + array.size].reshape(array.shape)
    copy[...] = array
    return copy


def together(works: Sequence[Callable[[], None]]) -> float:
    """Run all in parallel, each on a pinned thread; seconds from first start to last end."""
    start = threading.Barrier(len(works))

    def serve(work: Callable[[], None], core: int) -> tuple[float, float]:
        os.sched_setaffinity(0, {core})  # of this thread
        start.wait()
        began = time.perf_counter()
        work()
        return began, time.perf_counter()

    with ThreadPoolExecutor(len(works)) as pool:
        begins, ends = zip(*pool.map(serve, works, cycle(CORES)), strict=True)
    return float(max(ends) - min(begins))


def fraction_of_peak(
    works: Sequence[Callable[[], None]], flops: float, repetitions: int = 25
) -> tuple[float, float]:
    """(median fraction of the peak, median GFLOP/s) of `works` in parallel, `flops` in total.

    The peak is that of the same number of threads, measured before and after each repetition.
    """
    cells = [np.full(WIDTH, 0.5, np.float32) for _ in works]
    peaks: list[Callable[[], None]] = [(lambda mine=mine: _repeat(mine)) for mine in cells]
    together(works), together(peaks)
    fractions, speeds = [], []
    for _ in range(repetitions):
        before = together(peaks)
        seconds = together(works)
        after = together(peaks)
        peak = 2 * len(works) * REPEATS * FLOPS / (before + after)
        fractions.append(flops / seconds / peak)
        speeds.append(flops / seconds / 1e9)
    return float(np.median(fractions)), float(np.median(speeds))


def _repeat(cells: np.ndarray) -> None:
    for _ in range(REPEATS):
        multiply_add_in_registers(cells)
