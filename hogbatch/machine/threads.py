"""Computing parts of rows on the threads of this process."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from hogbatch.machine.linux import read_topology

ROWS: Final = 16  # of a thread, at least


def on_all_cores(compute: Callable[[int, int], object], count: int, least: int = ROWS) -> None:
    """Call `compute` with the first row and the end of parts of `count` rows, at the same time.

    A thread computes at least about `least` rows; a single one is this one.
    """
    threads = 1 if count <= least else min(read_topology().threads, -(-count // least))
    if threads == 1:
        compute(0, count)
        return
    bounds = [count * part // threads for part in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(compute, bounds[:-1], bounds[1:]))
