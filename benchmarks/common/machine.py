"""Description of the machine, the software versions and the command, for the JSON of a result."""

import os
import platform
import re
import sys
from contextlib import suppress
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

from hogbatch.version import version


def cpu_model() -> str:
    """The processor's name as the kernel reports it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def describe(*packages: str) -> dict[str, Any]:
    """Date, hardware, versions (also of those `packages` that are installed) and command."""
    return {
        "date": date.today().isoformat(),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": {"hogbatch": version()} | versions("numpy", "numba", "llvmlite", *packages),
        "command": command(),
    }


def versions(*packages: str) -> dict[str, str]:
    """Versions of those packages that are installed."""
    found = {}
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def command() -> str:
    """The command line that started this process, as `scripts/bench NAME flags` if it can be."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = (spec.name if spec else "").removesuffix(".__main__")
    first = Path(sys.argv[0]).name
    if name.startswith("benchmarks."):
        first = f"scripts/bench {name.removeprefix('benchmarks.')}"
    return " ".join([first, *sys.argv[1:]])


def without_directories(command: str) -> str:
    """`command` with the directories of all paths replaced by DIR, for results that are published.

    The name of the benchmark stays.
    """
    first, _, rest = command.partition(" ")
    name, _, flags = rest.partition(" ") if first == "scripts/bench" else ("", "", rest)
    shown = re.sub(r"[^\s=,]*/", "DIR/", flags)
    return " ".join(filter(None, [first, name, shown]))
