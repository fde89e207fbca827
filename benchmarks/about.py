"""Where and when a benchmark ran, for its JSON."""

import json
import os
import platform
import sys
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def cpu_model() -> str:
    """As the kernel calls it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine() -> dict[str, Any]:
    """Hardware, versions, date and command."""
    return {
        "date": date.today().isoformat(),
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "versions": versions("hogbatch", "numpy", "numba", "llvmlite"),
        "command": " ".join(sys.argv),
    }


def versions(*packages: str) -> dict[str, str]:
    """Of those that are installed: a checkout runs without being so itself."""
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def write(path: Path | None, results: list[dict[str, Any]], **settings: Any) -> None:
    """Write `results` with what `machine` says and `settings` to `path`, if there is one."""
    if path:
        content = {"about": machine() | settings, "results": results}
        path.write_text(json.dumps(content, indent=2) + "\n")
