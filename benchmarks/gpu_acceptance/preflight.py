"""Stage preflight: what the machine can do, before anything of hogbatch depends on it."""

import os
import resource
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu_acceptance.stage import Stage
from hogbatch.kernels.gpu.cuda_device import CudaDevice
from hogbatch.machine.linux import read_topology
from hogbatch.simulate.profile.machine import measure_transfers
from hogbatch.store.merge import MERGE_RULES

HOST_FILES: Final = (  # memory, huge pages, limits and version of the kernel
    *("/proc/meminfo", "/proc/sys/kernel/osrelease"),
    *("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max"),
    "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
)
CELLS, QUICK_CELLS = 1 << 20, 1 << 14  # sums stay below 2^24, and so exact, in float32
MERGES, QUICK_MERGES = 300, 3
SLICE = 4096  # cells that NumPy adds to in one call, without the interpreter lock


def run(stage: Stage) -> None:
    """Measure everything, also if something fails."""
    gpu = CudaDevice(0)
    gpu.enter()
    stage.attempt("device", partial(device, gpu))
    stage.attempt("nvidia-smi", nvidia_smi)
    stage.attempt("host", host)
    stage.attempt("transfers", partial(measure_transfers, gpu))
    stage.attempt("lost updates", partial(lost_updates, gpu, stage.settings.quick))


def device(gpu: CudaDevice) -> dict[str, Any]:
    """The properties of the device, with the versions of CuPy, CUDA and cuBLASLt."""
    from cuda import pathfinder

    runtime = gpu.xp.cuda.runtime
    facts = {
        name: value.decode(errors="replace") if isinstance(value, bytes) else value
        for name, value in runtime.getDeviceProperties(0).items()
    }
    return facts | {
        "free_memory": gpu.free_bytes(),
        "cupy": gpu.xp.__version__,
        "driver_cuda": runtime.driverGetVersion(),
        "runtime_cuda": runtime.runtimeGetVersion(),
        "cublaslt": pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path,
    }


def nvidia_smi() -> str:
    """Clocks, power and the link of all GPUs; a link is slower while its GPU is idle."""
    try:
        command = ["nvidia-smi", "--query", "--display=MEMORY,CLOCK,POWER,COMPUTE,PERFORMANCE"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"missing or failed: {error}"
    return done.stdout or done.stderr


def host() -> dict[str, Any]:
    """Cores, load, memory and its limits."""
    facts: dict[str, Any] = {
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "memlock_limit": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
    }
    for path in HOST_FILES:
        with suppress(OSError):
            facts[path] = Path(path).read_text().splitlines()[:3]
    return facts


def lost_updates(gpu: CudaDevice, quick: bool) -> dict[str, dict[str, float]]:
    """Updates lost when CPU threads and merges add ones to the same parameters.

    Merges are additions by the device, or copies that the host adds. Each CPU thread has a part of
    its own, so threads lose nothing among themselves.
    """
    cells, merges = (QUICK_CELLS, QUICK_MERGES) if quick else (CELLS, MERGES)
    (shared, mapped), buffer = gpu.visible(cells, np.float32), gpu.pinned(cells, np.float32)
    change = gpu.to_device(np.ones(cells, np.float32))
    seen, pulled = (gpu.zeros(cells, np.float32) for _ in range(2))

    def by_device() -> None:
        gpu.kernels.add(1.0, 0.0, seen, change, mapped, pulled)
        gpu.synchronize()

    def by_host() -> None:
        gpu.to_host(change, buffer)
        MERGE_RULES["delta"].merge(shared, buffer, 1.0)

    ways = {"by the device": by_device, "copied and by the host": by_host}
    return {name: lost_beside(shared, add, merges) for name, add in ways.items()}


def lost_beside(
    shared: NDArray[np.float32], add: Callable[[], None], merges: int
) -> dict[str, float]:
    """The sums expected after these merges minus those found; a cell of a pass is an update."""
    shared[:] = 0
    parts, stop = np.array_split(shared, max(1, read_topology().threads - 1)), threading.Event()
    passes = [0] * len(parts)

    def add_ones(number: int) -> None:
        part = parts[number]
        while not stop.is_set():
            for start in range(0, part.size, SLICE):
                part[start : start + SLICE] += np.float32(1)
            passes[number] += 1

    threads = [threading.Thread(target=add_ones, args=(n,)) for n in range(len(parts))]
    for thread in threads:
        thread.start()
    try:
        for _ in range(merges):
            add()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    expected = sum(part.size * (n + merges) for part, n in zip(parts, passes, strict=True))
    lost = expected - float(shared.sum(dtype=np.float64))
    done = {"merges": merges, "threads": len(parts), "passes": sum(passes) / len(parts)}
    return done | {"lost": lost, "lost_per_cell_and_merge": lost / merges / shared.size}
