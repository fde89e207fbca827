"""Measures transfers and merges on a GPU, or on NumPy in place of one."""

from collections.abc import Callable

import numpy as np

from hogbatch.kernels.gpu.device import Device
from hogbatch.simulate.hardware.gpu_cost import HAND_OVER

REPETITIONS = 3  # the fastest counts, because noise only slows down
LARGE, SMALL = 1 << 22, 1 << 8  # floats; of transfers


def measure_transfers(device: Device) -> dict[str, float]:
    """Measure transfers and the operations of a merge.

    Returns the figures of a description, in bytes per second and seconds.
    """
    nbytes = 4 * LARGE
    pulled, params, base, seen, change = (device.zeros(LARGE, np.float32) for _ in range(5))
    host, (shared, mapped) = device.pinned(LARGE, np.float32), device.visible(LARGE, np.float32)
    host[:] = 0
    finite = device.zeros(1, np.float32)
    exchanged = pulled, params, base, seen, change, finite

    def timed(work: Callable[[], None]) -> float:
        work()
        return min(device.measure(work) for _ in range(REPETITIONS))

    latency = timed(lambda: device.copy_into(pulled[:SMALL], host[:SMALL]))
    down = timed(lambda: device.to_host(change, host))
    up = timed(lambda: device.copy_into(pulled, shared))
    add = timed(lambda: device.kernels.add(0.5, 0.0, seen, change, mapped, pulled))
    hand_over = timed(lambda: device.kernels.hand_over(*exchanged))
    return {
        "exchange_speed": HAND_OVER * nbytes / hand_over,
        "link_speed": 2 * nbytes / (down + up),
        "link_seconds": latency,
        "mapped_speed": 2 * nbytes / add,
    }
