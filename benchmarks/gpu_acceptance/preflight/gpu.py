"""The GPU of stage preflight."""

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from hogbatch.kernels.gpu.cuda_device import CudaDevice


class Gpu(NamedTuple):
    """The GPU under test, and timers for it."""

    cupy: Any
    device: CudaDevice
    quick: bool  # small sizes, to test the program

    @classmethod
    def build(cls, quick: bool) -> "Gpu":
        """The first GPU that is visible; DeviceError if there is none."""
        device = CudaDevice(0)
        device.enter()
        return cls(import_module("cupy"), device, quick)

    def seconds(self, work: Callable[[], object], repetitions: int) -> float:
        """Seconds of the fastest of `repetitions` calls, including the wait for the device."""
        work()
        times = []
        for _ in range(repetitions):
            self.device.synchronize()
            began = time.perf_counter()
            work()
            self.device.synchronize()
            times.append(time.perf_counter() - began)
        return min(times)
