"""Stage sanitizer: NVIDIA's compute-sanitizer on the tests of the kernels with most barriers."""

import re
import shutil
import sys
import tempfile
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu_acceptance.stage import Stage
from benchmarks.gpu_acceptance.tests import FLAGS

PATHS: Final = (
    "tests/unit/kernels/gpu/test_replica.py",
    "tests/unit/kernels/test_losses.py",
    "tests/unit/kernels/test_sparse.py",
)
# pytest without CuPy's pool of memory, in which the tool would not see where one array ends.
PYTEST: Final = (
    "import cupy, pytest, sys; cupy.cuda.set_allocator(None); sys.exit(pytest.main(sys.argv[1:]))"
)
ONLY_PYTEST: Final = ("--target-processes", "application-only")  # not the one that looks for GPUs
TOOLS: Final = {  # with their flags; calls of the CUDA runtime that fail are part of the tests
    "memcheck": ("--report-api-errors", "no"),
    "racecheck": (),
}
USUAL_PLACE: Final = "/usr/local/cuda/bin/compute-sanitizer"
MARK: Final = "========="  # with which its lines begin
HEADER: Final = "COMPUTE-SANITIZER"
SUMMARY: Final = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
KEPT_LINES: Final = 200  # of the first errors


def run(stage: Stage) -> None:
    """Run each tool over each file; a file at a time, because it is slow."""
    program, parts = find(), list(product(TOOLS, PATHS))
    for number, (tool, path) in enumerate(parts):
        name = f"{tool} {Path(path).name}"
        if program is None:
            stage.record.skip(name, "not installed")
        else:
            command = [program, *ONLY_PYTEST, "--tool", tool, *TOOLS[tool]]
            limit_s = stage.left_s / (len(parts) - number)
            stage.attempt(name, partial(check, stage, name, command, path, limit_s))


def find() -> str | None:
    """The program; None if it is not installed."""
    if found := shutil.which("compute-sanitizer"):
        return found
    return USUAL_PLACE if Path(USUAL_PLACE).exists() else None


def check(stage: Stage, name: str, tool: list[str], path: str, limit_s: float) -> None:
    """Record the number of errors that the tool reports for one file of tests."""
    pytest = [sys.executable, "-c", PYTEST, *FLAGS, "--timeout=0", path]
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        code = stage.follow([*tool, *pytest], output=output, limit_s=limit_s)
        output.seek(0)
        text = output.read()
    found = findings(text)
    if code is None and not found["first"]:
        stage.record.skip(name, f"no errors within {limit_s:.0f} s, not finished")
    elif code is None:
        stage.record.fail(name, "timed out", found)
    elif found["errors"] is None:
        stage.record.fail(
            name, f"exit code {code} without a summary", found | {"end": text[-2000:]}
        )
    elif found["errors"] or code:
        stage.record.fail(name, f"{found['errors']} errors; exit code {code}", found)
    else:
        stage.record.add(name, found)


def findings(text: str) -> dict[str, Any]:
    """The errors by the tool's summaries, one per process (None without any); the first in full.

    A tool that was killed has reported errors, but no summary of them.
    """
    counts = [int(count) for count in SUMMARY.findall(text)]
    lines = [line for line in text.splitlines() if line.startswith(MARK) and HEADER not in line]
    kept = lines[:KEPT_LINES] if any(counts) or not counts else []
    return {"errors": sum(counts) if counts else None, "first": kept}
