"""cupy.cuda."""

from typing import Any

from cupy._compile import CompileException
from cupy._copies import MemoryPointer
from cupy._memory import (
    Memory,
    PinnedMemory,
    PinnedMemoryPointer,
    UnownedMemory,
)
from cupy._streams import (
    Event,
    Graph,
    Stream,
    get_current_stream,
    get_elapsed_time,
    synchronize_device,
)
from cupy.cuda import driver, memory, runtime

__all__ = [
    "CompileException",
    "Device",
    "Event",
    "Graph",
    "Memory",
    "MemoryPointer",
    "PinnedMemory",
    "PinnedMemoryPointer",
    "Stream",
    "UnownedMemory",
    "driver",
    "get_current_stream",
    "get_elapsed_time",
    "memory",
    "runtime",
]


class Device:
    """The device with this number; by default the current device."""

    def __init__(self, device: int | None = None) -> None:
        self.id = runtime.getDevice() if device is None else int(device)

    def use(self) -> "Device":
        runtime.setDevice(self.id)
        return self

    def synchronize(self) -> None:
        synchronize_device()

    @property
    def mem_info(self) -> tuple[int, int]:
        return runtime.memGetInfo()

    @property
    def compute_capability(self) -> str:
        return "90"

    def __int__(self) -> int:
        return self.id

    def __enter__(self) -> "Device":
        return self.use()

    def __exit__(self, *_: Any) -> None:
        """Do nothing: there is only one device."""
