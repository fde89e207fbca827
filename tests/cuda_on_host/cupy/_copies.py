"""Copies between host and device, and CuPy's memory pointers."""

import ctypes
from typing import Any

from cupy._device import CUDARuntimeError, refuse_in_capture
from cupy._memory import Memory, Region, reachable, region_of
from cupy._streams import Stream, get_current_stream

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = 1, 2, 3, 4  # cudaMemcpyKind


def copy(target: int, source: int, size: int, kind: int, stream: Stream) -> None:
    """cudaMemcpyAsync; copies from or to pageable host memory are complete when it returns."""
    if size == 0:
        return
    if kind in (HOST_TO_DEVICE, DEVICE_TO_DEVICE):
        _of_device(target)
    if kind in (DEVICE_TO_HOST, DEVICE_TO_DEVICE):
        _of_device(source)
    regions = tuple(reachable(each, size) for each in (target, source) if region_of(each))
    if len(regions) < 2:
        refuse_in_capture("a copy from or to host memory that is not pinned")
    if region_of(source) is not None:
        stream.enqueue(lambda: ctypes.memmove(target, source, size), regions)
    else:
        content = ctypes.string_at(source, size)
        stream.enqueue(lambda: ctypes.memmove(target, content, size), regions)
    if region_of(target) is None:
        stream.drain()


def _of_device(address: int) -> None:
    if not isinstance(region_of(address), Memory):
        raise CUDARuntimeError(f"cudaErrorInvalidValue: {address:#x} is not device memory")


class MemoryPointer:
    """A pointer to device memory."""

    def __init__(self, mem: Region, offset: int) -> None:
        self.mem = mem
        self.ptr = mem.ptr + offset
        self.device_id = mem.device_id

    def __add__(self, offset: int) -> "MemoryPointer":
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    def copy_from_host_async(self, mem: Any, size: int, stream: Stream | None = None) -> None:
        copy(self.ptr, _address(mem), size, HOST_TO_DEVICE, stream or get_current_stream())

    def copy_to_host_async(self, mem: Any, size: int, stream: Stream | None = None) -> None:
        copy(_address(mem), self.ptr, size, DEVICE_TO_HOST, stream or get_current_stream())


def _address(mem: Any) -> int:
    return mem if isinstance(mem, int) else mem.value
