"""Versions, and properties of the device and of the host."""

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from benchmarks.common.machine import nvidia_smi
from benchmarks.gpu_acceptance.preflight.gpu import Gpu
from benchmarks.gpu_acceptance.record import one_line

ATTRIBUTES: Final = {  # cudaDeviceAttr
    "multiprocessors": 16,
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_cache_bytes": 38,
    "copy_engines": 40,
    "unified_addressing": 41,
    "can_map_host_memory": 19,
    "host_native_atomics": 86,
    "pageable_memory_access": 88,
    "concurrent_managed_access": 89,
    "can_use_host_pointer_for_registered_memory": 91,
    "host_register_supported": 99,
    "host_register_read_only_supported": 113,
}
QUERIES: Final = (
    *("clocks.sm", "clocks.max.sm", "clocks.mem", "clocks.max.mem", "power.limit"),
    *("pcie.link.gen.current", "pcie.link.gen.max"),
    *("pcie.link.width.current", "pcie.link.width.max"),
    *("temperature.gpu", "persistence_mode", "compute_mode", "mig.mode.current"),
)
KERNEL_FILES: Final = {
    "shmem_huge_pages": "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
    "memory_limit_v2": "/sys/fs/cgroup/memory.max",
    "cpu_limit_v2": "/sys/fs/cgroup/cpu.max",
    "kernel": "/proc/sys/kernel/osrelease",
}


def versions(gpu: Gpu) -> dict[str, Any]:
    """Versions of CuPy, of the driver's and the runtime's CUDA, and the cuBLASLt that is used."""
    from cuda import pathfinder

    runtime = gpu.cupy.cuda.runtime
    return {
        "cupy": gpu.cupy.__version__,
        "driver_cuda": runtime.driverGetVersion(),
        "runtime_cuda": runtime.runtimeGetVersion(),
        "cublaslt": pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path,
    }


def device(gpu: Gpu) -> dict[str, Any]:
    """Name, memory and attributes; an attribute that this CUDA does not know has its error."""
    runtime = gpu.cupy.cuda.runtime
    properties = runtime.getDeviceProperties(0)
    free, total = runtime.memGetInfo()
    facts: dict[str, Any] = {
        "name": properties["name"].decode(),
        "compute_capability": f"{properties['major']}.{properties['minor']}",
        "memory": total,
        "free_memory": free,
        "pci_bus_id": runtime.deviceGetPCIBusId(0),
    }
    for name, number in ATTRIBUTES.items():
        try:
            facts[name] = runtime.deviceGetAttribute(number, 0)
        except Exception as error:
            facts[name] = one_line(error)
    return facts


def clocks_and_link(gpu: Gpu) -> dict[str, str]:
    """Clocks, power, and generation and width of the PCIe link, as nvidia-smi reports them.

    A link runs at a lower generation while the GPU is idle.
    """
    bus = gpu.cupy.cuda.runtime.deviceGetPCIBusId(0)
    if not nvidia_smi("name", "-i", bus):
        return {"nvidia-smi": "missing, or failed"}
    if lines := nvidia_smi(",".join(QUERIES), "-i", bus):
        return dict(zip(QUERIES, map(str.strip, lines[0].split(",")), strict=False))
    # It refuses a query as a whole if this version does not know one of the names.
    return {name: ", ".join(nvidia_smi(name, "-i", bus)) or "unknown" for name in QUERIES}


def host(gpu: Gpu) -> dict[str, Any]:
    """Cores, load, memory and its limits."""
    facts: dict[str, Any] = {
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg(),
        "memlock_limit": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
    }
    for line in Path("/proc/meminfo").read_text().splitlines()[:3]:
        name, _, value = line.partition(":")
        facts[name] = value.strip()
    for name, path in KERNEL_FILES.items():
        with suppress(OSError):
            facts[name] = Path(path).read_text().strip()
    return facts
