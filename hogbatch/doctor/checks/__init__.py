"""All checks: facts in, verdicts out. Nothing here reads the machine."""

from collections.abc import Callable
from typing import Final

from hogbatch.doctor.checks import caches, gpu, memory, processor, software
from hogbatch.doctor.facts import Facts
from hogbatch.doctor.verdict import Check, Verdict

CHECKS: Final[dict[str, dict[str, Callable[[Facts], Verdict]]]] = {
    "processor": {
        "model": processor.check_model,
        "vectors": processor.check_vectors,
        "cores": processor.check_cores,
        "CPU quota": processor.check_quota,
        "NUMA": processor.check_nodes,
        "governor": processor.check_governor,
        "load": processor.check_load,
    },
    "memory": {
        "memory": memory.check_memory,
        "shared memory": memory.check_shared_memory,
        "huge pages": memory.check_huge_pages,
    },
    "GPU": {
        "GPUs": gpu.check_gpus,
        "driver": gpu.check_driver,
        "CuPy": gpu.check_cupy,
        "pinning": gpu.check_pinning,
    },
    "caches": {
        "kernels": caches.check_kernels,
        "data": caches.check_data,
    },
    "software": {
        "Python": software.check_python,
        "packages": software.check_packages,
        "arrow": software.check_arrow,
        "sklearn": software.check_sklearn,
        "trackers": software.check_trackers,
        "open files": software.check_limits,
    },
}


def check(facts: Facts) -> list[Check]:
    """Apply every check to `facts`."""
    return [
        Check(group, name, decide(facts))
        for group, checks in CHECKS.items()
        for name, decide in checks.items()
    ]
