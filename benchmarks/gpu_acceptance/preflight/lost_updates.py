"""Updates lost when CPU threads and the device add to the same parameters.

Each CPU thread adds ones to a part of its own, so threads lose nothing among themselves.
"""

import threading
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu_acceptance.preflight.gpu import Gpu
from benchmarks.gpu_acceptance.preflight.transfers import adders, host_array
from hogbatch.machine.linux import read_topology

CELLS, QUICK_CELLS = 1 << 20, 1 << 14  # sums stay below 2^24, and so exact, in float32
MERGES, QUICK_MERGES = 300, 3
LIMIT_S = 4.0
SLICE = 4096  # cells that NumPy adds to in one call, without the interpreter lock


class Adder(threading.Thread):
    """Adds 1 to all cells of its part, again and again, until `stop` is set."""

    def __init__(self, part: NDArray[np.float32], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._slices = [part[start : start + SLICE] for start in range(0, part.size, SLICE)]
        self._stop_event = stop
        self.passes = 0

    def run(self) -> None:
        while not self._stop_event.is_set():
            for cells in self._slices:
                np.add(cells, np.float32(1), out=cells)
            self.passes += 1


def measure(gpu: Gpu) -> dict[str, dict[str, Any]]:
    """For each way to merge: merges, passes of the CPU threads, and updates lost."""
    cells, merges = (QUICK_CELLS, QUICK_MERGES) if gpu.quick else (CELLS, MERGES)
    change = gpu.device.to_device(np.ones(cells, np.float32))
    accounts = {}
    with host_array(gpu, "registered", 4 * cells) as shared:
        for name, add in adders(gpu, change, shared).items():
            shared[:] = 0
            stop = threading.Event()
            parts = np.array_split(shared, max(1, read_topology().threads - 1))
            threads = [Adder(part, stop) for part in parts]
            for thread in threads:
                thread.start()
            done, deadline = 0, time.monotonic() + LIMIT_S
            try:
                while done < merges and time.monotonic() < deadline:
                    add()
                    done += 1
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            accounts[name] = account(parts, [thread.passes for thread in threads], done)
    return accounts


def account(parts: list[NDArray[np.float32]], passes: list[int], merges: int) -> dict[str, Any]:
    """Updates lost: the sums expected minus those found; each cell of each pass is an update."""
    expected = sum(part.size * (count + merges) for part, count in zip(parts, passes, strict=True))
    lost = expected - sum(float(part.sum(dtype=np.float64)) for part in parts)
    cells = sum(part.size for part in parts)
    return {
        "merges": merges,
        "threads": len(parts),
        "passes": sum(passes) / len(passes),
        "lost": lost,
        "lost_per_merge": lost / merges,
        "lost_per_cell_and_merge": lost / merges / cells,
    }
