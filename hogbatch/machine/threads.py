"""Computing parts of rows on the threads of this process."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from hogbatch.machine.linux import read_topology

ROWS: Final = 16  # of a thread, at least


def on_all_cores(compute: Callable[[int, int], object], count: int) -> None:
    """Call `compute` with the first row and the end of parts of `count` rows, at the same time."""
    threads = max(1, min(read_topology().threads, -(-count // ROWS)))
    bounds = [count * part // threads for part in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(compute, bounds[:-1], bounds[1:]))
