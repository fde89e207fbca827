"""The environment of a run: versions, processor, memory and GPUs."""

import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from hogbatch.machine import linux
from hogbatch.version import version

PACKAGES: Final = ("numpy", "numba", "cupy", "cupy-cuda12x", "cupy-cuda13x")


def read_environment(root: Path = linux.ROOT) -> dict[str, Any]:
    """Return facts for the record of a run, within milliseconds; starts no process.

    `versions` by package, "python" among them, `processor`, `cores` and `logical_cores` that this
    process may use, `memory` in bytes, `gpus` by name, and `driver`, the version of NVIDIA's. A
    fact that cannot be read is missing.
    """
    topology = linux.read_topology(root)
    facts: dict[str, Any] = {
        "versions": {"hogbatch": version(), "python": platform.python_version()}
        | {name: found for name in PACKAGES if (found := installed(name)) is not None},
        "processor": linux.processor_name(root),
        "cores": len(topology.siblings),
        "logical_cores": len(topology.cores),
        "gpus": list(linux.nvidia_gpus(root)),
    }
    with suppress(OSError, ValueError):
        facts["memory"] = linux.total_memory(root)
    if driver := linux.nvidia_driver(root):
        facts["driver"] = driver
    return facts


def installed(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None
