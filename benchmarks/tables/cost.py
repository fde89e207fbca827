"""Seconds and peak memory from a file of flights to a trained linear model."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.common.hogbatch_run import PROGRAM
from benchmarks.tables.cases import late_flights

INTERVAL_S: Final = 0.01  # between two readings of the memory
FIT: Final = """
import sys
import pandas as pd
from benchmarks.tables.cases import cases
from benchmarks.tables.peer import peer, with_numbers
case = cases(None)["flights-late"]
path = sys.argv[1]
frame = with_numbers(case, (pd.read_csv if path.endswith("csv") else pd.read_parquet)(path))
features = frame.drop(columns=case.label)
peer(case, features).fit(features, frame[case.label])
"""


def measure(repetitions: int) -> list[dict[str, Any]]:
    """Measure both programs on both files in turn; print a line for each run."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        frame = late_flights()
        paths = Path(folder) / "flights.csv", Path(folder) / "flights.parquet"
        frame.to_csv(paths[0], index=False)
        frame.to_parquet(paths[1])
        for number in range(repetitions):
            for path in paths:
                run = ["--run-dir", f"{folder}/run-{number}-{path.suffix}", "--quiet"]
                flags = ["--label", "late", "--hidden", "", *run]
                commands = {
                    "hogbatch": [*PROGRAM, "train", str(path), *flags],
                    "pandas and scikit-learn": [sys.executable, "-c", FIT, str(path)],
                }
                for name, command in commands.items():
                    seconds, peak = _run(command)
                    found.append(
                        {"name": name, "file": path.suffix, "seconds": seconds, "bytes": peak}
                    )
                    print(f"{name}, {path.suffix}: {seconds:.2f} s, {peak / 1e6:.0f} MB")
    return found


def _run(command: list[str]) -> tuple[float, int]:
    """Seconds of a command, and the peak memory of it and its children in bytes."""
    began, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        peak = max(peak, sum(map(_memory, _family(process.pid))))
        time.sleep(INTERVAL_S)
    if process.returncode:
        raise SystemExit(f"tables: exit code {process.returncode}: {' '.join(command)}")
    return time.perf_counter() - began, peak


def _family(pid: int) -> list[int]:
    """A process and all its descendants; workers are children of the thread that started them."""
    found = [pid]
    for parent in found:
        for listed in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, listed.read_text().split())
            except OSError:  # the thread or process has ended
                continue
    return found


def _memory(pid: int) -> int:
    """Proportional set size in bytes; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(each.split()[1]) for each in lines if each.startswith("Pss:")), 0)
