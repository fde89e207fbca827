"""Measures how long Linux lets a thread run while another one waits for the same core."""

import os
import subprocess
import sys
import time
from statistics import median
from typing import Any

WATCHED_S = 0.4
LEAST_PAUSE_S = 2e-4  # shorter pauses are interrupts of the kernel, not the other process
DEADLINE_S = 30.0


def measure_slice() -> float | None:
    """Return the median time slice in seconds of two processes that share one core.

    None if one of them did not run, or none of them was ever interrupted.
    """
    core = min(os.sched_getaffinity(0))
    command = [sys.executable, "-I", __file__, str(core)]
    streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    processes = [subprocess.Popen(command, **streams) for _ in range(2)]
    lines: list[str] = []
    try:
        for process in processes:
            lines += process.communicate(timeout=DEADLINE_S)[0].split()
    except subprocess.TimeoutExpired:
        return None
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return median(map(float, lines)) if lines else None


def _watch(core: int) -> list[float]:
    """Compute on `core`; return the seconds between two pauses, without the first."""
    os.sched_setaffinity(0, {core})
    began = last = time.perf_counter()
    end = began + WATCHED_S
    slices: list[float] = []
    while last < end:
        now = time.perf_counter()
        if now - last > LEAST_PAUSE_S:
            slices.append(last - began)
            began = now
        last = now
    return slices[1:]


if __name__ == "__main__":
    print(*_watch(int(sys.argv[1])))
