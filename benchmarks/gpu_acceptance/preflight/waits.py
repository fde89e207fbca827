"""What a wait for the device costs, spinning or blocking, while all cores are busy."""

import mmap
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu_acceptance.preflight.gpu import Gpu
from hogbatch.machine.linux import read_topology

KERNEL_S = 1e-3
WAITS, QUICK_WAITS = 200, 3
START_S = 10.0
BUSY = """
import mmap, sys
path, place = sys.argv[1], int(sys.argv[2])
with open(path, "r+b") as file:
    counts = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
while True:
    for _ in range(1000):
        pass
    counts[place] += 1
"""
CHAIN = """
extern "C" __global__ void chain(int links, float* out)
{
    float x = out[0];
    for (int n = 0; n < links; ++n) x = 0.5f * x + 1.0f;
    out[0] = x;
}
"""


@contextmanager
def busy_cores() -> Iterator[NDArray[np.int64]]:
    """A busy process for every core; yields what each has done so far, in units of work."""
    cores = read_topology().threads
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(8 * cores)
        counts = np.frombuffer(mmap.mmap(file.fileno(), 8 * cores), np.int64)
        command = [sys.executable, "-S", "-c", BUSY, file.name]
        started = [subprocess.Popen([*command, str(place)]) for place in range(cores)]
        try:
            deadline = time.monotonic() + START_S
            while not counts.all() and time.monotonic() < deadline:
                time.sleep(0.01)
            yield counts
        finally:
            for process in started:
                process.kill()
                process.wait()


def measure(gpu: Gpu) -> dict[str, Any]:
    """For spinning and blocking waits: delays after a kernel's end, and the work done by others."""
    chain, out = gpu.cupy.RawKernel(CHAIN, "chain"), gpu.cupy.zeros(1, np.float32)
    links, kernel_s = calibrated(gpu, chain, out)
    count = QUICK_WAITS if gpu.quick else WAITS
    found: dict[str, Any] = {"kernel_us": 1e6 * kernel_s}
    with busy_cores() as counts:
        for name, block in (("spinning", False), ("blocking", True)):
            delays, before, began = [], counts.sum(), time.perf_counter()
            for _ in range(count):
                start = time.perf_counter()
                chain((1,), (1,), (np.int32(links), out))
                gpu.event(block=block).synchronize()
                delays.append(time.perf_counter() - start - kernel_s)
            spent = time.perf_counter() - began
            found[name] = {
                "delay_us_median": 1e6 * statistics.median(delays),
                "delay_us_max": 1e6 * max(delays),
                "work_of_others_per_s": float(counts.sum() - before) / spent,
            }
    return found


def calibrated(gpu: Gpu, chain: Any, out: Any) -> tuple[int, float]:
    """The length of the chain that takes about KERNEL_S, and the seconds it takes."""

    def seconds_of(links: int) -> float:
        return gpu.device_seconds(lambda: chain((1,), (1,), (np.int32(links), out)), 3)

    links, seconds = 10_000, 0.0
    for _ in range(4):
        seconds = seconds_of(links)
        if seconds >= 0.9 * KERNEL_S:
            break
        links = int(links * min(100.0, KERNEL_S / max(seconds, 1e-6)))
    return links, seconds
