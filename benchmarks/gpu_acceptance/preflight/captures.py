"""Does capturing graphs on one thread fail while another thread copies and waits?"""

import threading
from typing import Any

import numpy as np

from benchmarks.gpu_acceptance.preflight.gpu import Gpu
from benchmarks.gpu_acceptance.preflight.transfers import host_array
from benchmarks.gpu_acceptance.record import one_line

CAPTURES, QUICK_CAPTURES = 1000, 5
CELLS, QUICK_CELLS = 1 << 18, 1 << 10
START_S = 10.0
MAX_ERRORS = 100  # of copies


def beside_copies(gpu: Gpu) -> dict[str, Any]:
    """Counts of captures and of copies; RuntimeError with the first error of each thread."""
    count = QUICK_CAPTURES if gpu.quick else CAPTURES
    copier = Copier(gpu)
    copier.start()
    if not copier.began.wait(START_S):
        raise RuntimeError(f"no copy was done in {START_S:g} s: {copier.errors[:1]}")
    cells = gpu.device.zeros(100, np.float32)
    ones = gpu.device.to_device(np.ones(100, np.float32))
    spare = gpu.device.zeros(100, np.float32)
    errors, captured = list[str](), 0
    for _ in range(count):
        try:
            gpu.device.capture(
                lambda: gpu.device.kernels.add(1.0, 0.0, spare, ones, cells, cells)
            )()
            captured += 1
        except Exception as error:
            errors.append(one_line(error))
    copier.stop.set()
    copier.join()
    if errors or copier.errors:
        raise RuntimeError(
            f"{len(errors)} of {count} captures failed ({errors[:1]}), and "
            f"{len(copier.errors)} of {copier.copies} copies ({copier.errors[:1]})"
        )
    sums = np.zeros(100, np.float32)
    gpu.device.to_host(cells, sums)
    if (sums != 2 * count).any():  # each capture runs the work once, and replays it once
        raise RuntimeError(f"expected sums of {2 * count}; got {sums.min()} to {sums.max()}")
    return {"captures": captured, "copies": copier.copies}


class Copier(threading.Thread):
    """Copies to and from the device on a stream of its own, as the exchange thread of a worker."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(daemon=True)
        self._rig = gpu
        self.began, self.stop = threading.Event(), threading.Event()
        self.copies = 0
        self.errors: list[str] = []

    def run(self) -> None:
        gpu = self._rig
        gpu.device.enter()
        size = 4 * (QUICK_CELLS if gpu.quick else CELLS)
        with (
            host_array(gpu, "pageable", size) as pageable,
            host_array(gpu, "registered", size) as registered,
        ):
            there = gpu.device.to_device(pageable)
            while not self.stop.is_set() and len(self.errors) < MAX_ERRORS:
                try:
                    for here in (pageable, registered):
                        gpu.device.copy_into(there, here)
                        gpu.device.to_host(there, here)
                        self.copies += 2
                    self.began.set()
                except Exception as error:
                    self.errors.append(one_line(error))
