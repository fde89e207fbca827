"""cupy.cuda."""

from cupy._copies import MemoryPointer
from cupy._memory import UnownedMemory, alloc_pinned_memory
from cupy._streams import Event, Stream, get_current_stream, get_elapsed_time
from cupy.cuda import driver, runtime

__all__ = ["Event", "MemoryPointer", "Stream", "UnownedMemory", "alloc_pinned_memory", "driver"]
__all__ += ["get_current_stream", "get_elapsed_time", "runtime"]


class Device:
    """The device with this number."""

    def __init__(self, device: int) -> None:
        self.id = device

    def use(self) -> "Device":
        runtime.setDevice(self.id)
        return self
