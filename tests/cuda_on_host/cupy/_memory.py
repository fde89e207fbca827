"""Device memory. Each array is followed by a guard page, and all of its bits are initially 1.

`region_of` finds live memory only, so that accesses to freed or foreign memory are detected.
"""

import ctypes
import mmap
import os
import weakref
from bisect import bisect_right, insort
from collections.abc import Callable
from typing import Any

import numpy as np

from cupy._device import MEMORY, CUDARuntimeError, refuse_in_capture

ALIGNMENT = 16  # bytes; with more, overruns into the padding would go unnoticed
MAX_FILL = 16 << 20  # bytes of a new array that are filled
HOST_REGISTER_READ_ONLY = 8  # a flag of cudaHostRegister
NOT_SUPPORTED = 801  # cudaErrorNotSupported

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class OutOfMemoryError(MemoryError):
    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        text = f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes"
        super().__init__(text + (f", limit set to: {limit:,} bytes)." if limit else ")."))


class Region:
    """Memory that the device can access: `size` bytes at `ptr`."""

    device_id = 0

    def __init__(self, ptr: int, size: int) -> None:
        self.ptr = ptr
        self.size = size

    def register(self, *mapping: int) -> None:
        """Make it known to `region_of` while it is alive; unmap `mapping` afterwards, if given."""
        insort(_starts, self.ptr)
        _regions[self.ptr] = self
        weakref.finalize(self, _forget, self.ptr, *mapping).atexit = False


class Memory(Region):
    """Device memory from the pool."""

    def __init__(self, size: int) -> None:
        super().__init__(0, size)
        if size > 0:
            refuse_in_capture("allocating memory")
            pool.check_capacity(size)
            self.ptr, *mapping = _map(size)
            self.register(*mapping)


class UnownedMemory(Region):
    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        super().__init__(ptr, size)
        self._owner = owner


class MemoryPool:
    """Counts live memory. CuPy's pool caches freed memory for reuse, this one does not."""

    def __init__(self) -> None:
        self._limit = 0  # no limit
        self.finish_all: Callable[[], object] = lambda: None  # queued work keeps memory alive

    def check_capacity(self, size: int) -> None:
        """Raise OutOfMemoryError if `size` bytes cannot be allocated."""
        allowed = min(MEMORY, self._limit or MEMORY) - size
        if _live_bytes() > allowed and self.used_bytes() > allowed:
            raise OutOfMemoryError(size, _live_bytes(), self._limit)

    def used_bytes(self) -> int:
        self.finish_all()
        return _live_bytes()

    total_bytes = used_bytes

    def free_bytes(self) -> int:
        return 0

    def free_all_blocks(self, stream: Any = None) -> None:
        self.finish_all()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self._limit = int(MEMORY * fraction) if fraction is not None else size or 0

    def get_limit(self) -> int:
        return self._limit


class PinnedMemory(mmap.mmap):
    """Host memory that the device can access."""

    def __new__(cls, size: int) -> "PinnedMemory":
        self = super().__new__(cls, -1, size)
        self.mem = Region(ctypes.addressof(ctypes.c_char.from_buffer(self)), size)
        self.mem.register()
        return self


def PinnedMemoryPointer(memory: PinnedMemory, offset: int) -> memoryview:
    """A buffer, like CuPy's."""
    return memoryview(memory)[offset:]


def host_register(ptr: int, size: int, flags: int) -> None:
    """cudaHostRegister."""
    if flags & HOST_REGISTER_READ_ONLY:
        raise CUDARuntimeError(NOT_SUPPORTED)  # cudaDevAttrHostRegisterReadOnlySupported is 0
    if size <= 0 or not _writable(ptr, size):  # pages are pinned for writing
        raise CUDARuntimeError("cudaErrorInvalidValue: invalid argument")
    if region_of(ptr) is not None or region_of(ptr + size - 1) is not None:
        raise CUDARuntimeError("cudaErrorHostMemoryAlreadyRegistered: part or all is registered")
    _registered[ptr] = Region(ptr, size)
    _registered[ptr].register()


def host_unregister(ptr: int) -> None:
    """cudaHostUnregister."""
    pool.finish_all()
    if _registered.pop(ptr, None) is None:
        raise CUDARuntimeError("cudaErrorHostMemoryNotRegistered: pointer is not registered")


def region_of(address: int) -> Region | None:
    """The device memory or registered host memory that contains `address`, or None."""
    at = bisect_right(_starts, address)
    region = _regions.get(_starts[at - 1]) if at else None
    return region if region is not None and address < region.ptr + region.size else None


def reachable(address: int, size: int) -> Region:
    """The region that contains `size` bytes at `address`; raises an error if there is none."""
    region = region_of(address)
    if region is None or address + size > region.ptr + region.size:
        raise CUDARuntimeError(
            f"cudaErrorIllegalAddress: {size} bytes at {address:#x} are not in memory that "
            "the device can access (freed, not registered, or too short)"
        )
    return region


class _Interface:
    def __init__(self, **fields: Any) -> None:
        self.__array_interface__ = {"version": 3, **fields}


def host_view(
    address: int, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...] | None = None
) -> np.ndarray:
    """A NumPy view of the memory at `address`."""
    if 0 in shape:
        return np.empty(shape, dtype)
    fields = {"data": (address, False), "shape": shape, "typestr": dtype.str, "strides": strides}
    return np.asarray(_Interface(**fields))


def _writable(ptr: int, size: int) -> bool:
    """Whether this process may write all of `size` bytes at `ptr`."""
    end = ptr + size
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, access, *_ = line.split()
            low, high = (int(each, 16) for each in span.split("-"))
            if low < end and ptr < high and "w" not in access:
                return False
    return True


def _live_bytes() -> int:
    return sum(each.size for each in list(_regions.values()) if isinstance(each, Memory))


def _forget(start: int, *mapping: int) -> None:
    _starts.remove(start)
    if mapping:
        _libc.munmap(*mapping)


def _map(size: int) -> tuple[int, int, int]:
    """Map new pages for `size` bytes; returns their address, and the address and size to unmap."""
    page = mmap.PAGESIZE
    readable = -(-size // page) * page
    anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    begin = _libc.mmap(None, readable + page, mmap.PROT_READ | mmap.PROT_WRITE, anonymous, -1, 0)
    if begin == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _libc.mprotect(begin + readable, page, 0)
    ptr = begin + readable - -(-size // ALIGNMENT) * ALIGNMENT
    ctypes.memset(ptr, 0xFF, min(begin + readable - ptr, MAX_FILL))
    return ptr, begin, readable + page


_starts: list[int] = []  # addresses of all live regions, sorted
_regions: "weakref.WeakValueDictionary[int, Region]" = weakref.WeakValueDictionary()
_registered: dict[int, Region] = {}
pool = MemoryPool()
