"""The overhead of launching kernels and graphs, in microseconds."""

import time
from collections.abc import Callable

from benchmarks.gpu_acceptance.preflight.gpu import Gpu

LAUNCHES, QUICK_LAUNCHES = 2000, 20
KERNELS = 50  # of the graph
EMPTY = 'extern "C" __global__ void empty() {}'


def overheads(gpu: Gpu) -> dict[str, float]:
    """Of an empty kernel and of a graph: per call with many queued, and of a call with its wait."""
    count = QUICK_LAUNCHES if gpu.quick else LAUNCHES
    empty = gpu.cupy.RawKernel(EMPTY, "empty")

    def launch() -> None:
        empty((1,), (32,), ())

    def launch_all() -> None:
        for _ in range(KERNELS):
            launch()

    replay = gpu.device.capture(launch_all)
    return {
        "launch_us": per_call_us(gpu, launch, count),
        "launch_and_wait_us": waited_us(gpu, launch, count // 10),
        f"graph_of_{KERNELS}_us": per_call_us(gpu, replay, count // 10),
        f"graph_of_{KERNELS}_and_wait_us": waited_us(gpu, replay, count // 10),
        f"graph_of_{KERNELS}_call_us": call_us(gpu, replay, count // 10),
        f"{KERNELS}_launches_us": per_call_us(gpu, launch_all, count // 10),
    }


def per_call_us(gpu: Gpu, work: Callable[[], object], count: int) -> float:
    """Microseconds per call of `count` calls in a row, until the device is done."""
    return 1e6 * gpu.seconds(lambda: [work() for _ in range(count)], 3) / count


def waited_us(gpu: Gpu, work: Callable[[], object], count: int) -> float:
    """Microseconds of a call and a spinning wait for it; the fastest."""
    stream, found = gpu.cupy.cuda.get_current_stream(), []
    for _ in range(count):
        began = time.perf_counter()
        work()
        stream.synchronize()
        found.append(time.perf_counter() - began)
    return 1e6 * min(found)


def call_us(gpu: Gpu, work: Callable[[], object], count: int) -> float:
    """Microseconds until a call returns while the device is idle; the fastest."""
    found = []
    for _ in range(count):
        gpu.device.synchronize()
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    gpu.device.synchronize()
    return 1e6 * min(found)
