"""Where and when a benchmark ran, for its JSON."""

import json
import os
import platform
import sys
from datetime import date
from importlib.metadata import version
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
        "versions": {name: version(name) for name in ("hogbatch", "numpy", "numba", "llvmlite")},
        "command": " ".join(sys.argv),
    }


def write(path: Path | None, results: list[dict[str, Any]], **settings: Any) -> None:
    """Write `results` with what `machine` says and `settings` to `path`, if there is one."""
    if path:
        content = {"about": machine() | settings, "results": results}
        path.write_text(json.dumps(content, indent=2) + "\n")
