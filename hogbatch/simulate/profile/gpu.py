"""Measures transfers and merges on a GPU, or on NumPy in place of one."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hogbatch.kernels.gpu.device import Device

REPETITIONS = 3  # the fastest counts, because noise only slows down
LARGE, SMALL = 1 << 22, 1 << 8  # floats; of transfers


def measure_transfers(device: Device, merge: Callable[[Any, Any, float], None]) -> dict[str, float]:
    """Measure transfers and the operations of a merge; `merge` adds a change on the host.

    Returns the figures of a description, in bytes per second and seconds.
    """
    nbytes = 4 * LARGE
    params, base, change = (device.zeros(LARGE, np.float32) for _ in range(3))
    pulled, host, shared = device.zeros(LARGE, np.float32), *_pinned(device, LARGE)
    finite = device.zeros(1, np.float32)

    def exchange() -> None:
        device.kernels.rejoin(pulled, params, base)
        device.kernels.take(params, base, change, finite)

    def timed(work: Callable[[], None]) -> float:
        work()
        return min(device.measure(work) for _ in range(REPETITIONS))

    small = _pinned(device, SMALL)[0]
    latency = timed(lambda: device.copy_into(pulled[:SMALL], small))
    down = timed(lambda: device.to_host(change, host))
    up = timed(lambda: device.copy_into(pulled, shared))
    on_host = timed(lambda: merge(shared, host, 0.5))
    link = 2 * nbytes / (down + up)
    mapped = device.mapped(shared)
    mapped_speed = link / 2
    if mapped is not None:
        add = timed(lambda: device.kernels.add(0.5, change, mapped))
        mapped_speed = 2 * nbytes / add
    return {
        "exchange_speed": 9 * nbytes / timed(exchange),
        "link_speed": link,
        "link_seconds": latency,
        "mapped_speed": mapped_speed,
        "host_add_speed": nbytes / on_host,
    }


def _pinned(device: Device, size: int) -> list[Any]:
    arrays = [device.pinned(size, np.float32) for _ in range(2)]
    for array in arrays:
        array[:] = 0
    return arrays
