"""Measures the barrier of a team of CPU threads (`hogbatch.kernels.cpu.barrier`)."""

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.cpu.barrier import new_barrier, wait_for_all

REPETITIONS: Final = 15
UNDISTURBED: Final = 1.05  # seconds that pass for each second of computing of a thread
FEWEST: Final = 1000  # barriers of a repetition


@kernel
def wait_often(barrier: NDArray[np.int64], threads: int, times: int) -> None:
    """Wait `times` times for all `threads` threads."""
    for _ in range(times):
        wait_for_all(barrier, threads)


def measure_barrier(cores: Sequence[int], seconds: float) -> float | None:
    """Return the seconds of one barrier of a thread on each of these logical cores.

    A repetition takes about `seconds`. None if there are fewer than two cores, or if other
    processes kept interrupting the threads.
    """
    if len(cores) < 2:
        return None
    wait_often(new_barrier(), 1, 1)  # compiles
    times, seconds_per_pass = FEWEST, []
    for _ in range(REPETITIONS):
        passed, computing = _repetition(cores, times)
        if passed <= UNDISTURBED * computing:
            seconds_per_pass.append(passed / times)
            times = max(FEWEST, round(seconds / min(seconds_per_pass)))
    return min(seconds_per_pass, default=None)


def _repetition(cores: Sequence[int], times: int) -> tuple[float, float]:
    """Seconds that pass for the thread that begins last, and the least seconds of computing.

    The others have waited for it, so its barriers are those that all threads reach together.
    """
    barrier, start = new_barrier(), threading.Barrier(len(cores))
    took: list[tuple[float, float]] = []

    def work(core: int) -> None:
        with suppress(OSError):  # the core has gone offline
            os.sched_setaffinity(0, {core})  # of this thread
        start.wait()
        began, computing = time.perf_counter(), time.thread_time()
        wait_often(barrier, len(cores), times)
        took.append((time.perf_counter() - began, time.thread_time() - computing))

    threads = [threading.Thread(target=work, args=(core,)) for core in cores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed, computing = zip(*took, strict=True)
    return min(passed), min(computing)
