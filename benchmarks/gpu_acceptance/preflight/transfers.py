"""Speeds of copies, and of adding a change on the device to parameters of the host."""

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu_acceptance.preflight.gpu import Gpu
from hogbatch.store.merge import MERGE_RULES

SIZES = (1 << 20, 8 << 20, 64 << 20, 256 << 20)  # bytes
QUICK_SIZES = (1 << 14, 1 << 16)
KINDS = ("pageable", "registered", "pinned")
REPETITIONS = 5

Floats = NDArray[np.float32]


@contextmanager
def host_array(gpu: Gpu, kind: str, size: int) -> Iterator[Floats]:
    """float32 numbers on the host, of `size` bytes, in memory of that kind; all are 1.

    RuntimeError if the memory cannot be registered.
    """
    if kind == "pinned":
        array = gpu.device.pinned(size // 4, np.float32)
    else:  # on pages of its own: a copy must not span registered and other memory
        array = np.frombuffer(mmap.mmap(-1, size), np.float32)
    array[:] = 1
    if kind == "registered" and not gpu.device.pin(array):
        raise RuntimeError("the memory cannot be registered")
    try:
        yield array
    finally:
        if kind == "registered":
            gpu.device.unpin(array)


def copies(gpu: Gpu) -> dict[str, dict[str, float]]:
    """{"to device, pinned": {bytes: GB/s}, ...}."""
    speeds: dict[str, dict[str, float]] = {}
    for size in QUICK_SIZES if gpu.quick else SIZES:
        there = gpu.cupy.zeros(size // 4, np.float32)
        for kind in KINDS:
            with host_array(gpu, kind, size) as here:
                directions = {
                    "to device": partial(there.set, here),
                    "to host": partial(there.get, out=here),
                }
                for direction, copy in directions.items():
                    speed = size / gpu.seconds(copy, REPETITIONS) / 1e9
                    speeds.setdefault(f"{direction}, {kind}", {})[str(size)] = speed
    return speeds


def additions(gpu: Gpu) -> dict[str, dict[str, float]]:
    """GB/s of a change that is added to registered parameters: {method: {bytes: GB/s}}."""
    speeds: dict[str, dict[str, float]] = {"by the device": {}, "copied and by the host": {}}
    for size in QUICK_SIZES[:1] if gpu.quick else SIZES[1:3]:
        change = gpu.device.to_device(np.ones(size // 4, np.float32))
        with host_array(gpu, "registered", size) as shared:
            for name, add in adders(gpu, change, shared).items():
                speeds[name][str(size)] = size / gpu.seconds(add, REPETITIONS) / 1e9
    return speeds


def adders(gpu: Gpu, change: Any, shared: Floats) -> dict[str, Callable[[], object]]:
    """The two ways to add `change`, on the device, to `shared`, which is registered."""
    buffer, merge = gpu.device.pinned(shared.size, np.float32), MERGE_RULES["delta"].merge
    mapped: Any = gpu.device.mapped(shared)
    seen, pulled = (gpu.device.zeros(shared.size, np.float32) for _ in range(2))

    def on_host() -> None:
        gpu.device.to_host(change, buffer)
        merge(shared, buffer, 1.0)

    def on_device() -> None:
        gpu.device.kernels.add(1.0, 0.0, seen, change, mapped, pulled)
        gpu.device.synchronize()

    on_device_too = {} if mapped is None else {"by the device": on_device}
    return {**on_device_too, "copied and by the host": on_host}
