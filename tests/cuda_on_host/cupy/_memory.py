"""Device memory. Each array ends at a page that nothing may touch, and begins as all ones bits.

`region_of` knows what lives, so that what was freed, or never was the device's, is noticed.
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

ALIGNMENT = 16  # bytes; more would leave room behind an array where a mistake does not show
SPOILT = 16 << 20  # bytes at most of a new array that are written to

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
    """Memory that the device can use, from `ptr` for `size` bytes."""

    device_id = 0

    def __init__(self, ptr: int, size: int) -> None:
        self.ptr = ptr
        self.size = size

    def register(self, *mapping: int) -> None:
        """Let `region_of` find it as long as it lives; then undo its mapping, if that is given."""
        insort(_starts, self.ptr)
        _regions[self.ptr] = self
        weakref.finalize(self, _forget, self.ptr, *mapping).atexit = False


class Memory(Region):
    """Memory of the device's own, from the pool."""

    def __init__(self, size: int) -> None:
        super().__init__(0, size)
        if size > 0:
            refuse_in_capture("allocating memory")
            pool.find_room(size)
            self.ptr, *mapping = _map(size)
            self.register(*mapping)


class UnownedMemory(Region):
    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        super().__init__(ptr, size)
        self._owner = owner


class MemoryPool:
    """Counts what lives. CuPy's keeps freed memory for reuse, this one keeps none."""

    def __init__(self) -> None:
        self._limit = 0  # none
        self.finish_all: Callable[[], object] = lambda: None  # work that waits keeps memory alive

    def find_room(self, size: int) -> None:
        """Raise if there is none."""
        room = min(MEMORY, self._limit or MEMORY) - size
        if _living_bytes() > room and self.used_bytes() > room:
            raise OutOfMemoryError(size, _living_bytes(), self._limit)

    def used_bytes(self) -> int:
        self.finish_all()
        return _living_bytes()

    total_bytes = used_bytes

    def free_bytes(self) -> int:
        return 0

    def free_all_blocks(self, stream: Any = None) -> None:
        self.finish_all()

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self._limit = int(MEMORY * fraction) if fraction is not None else size or 0

    def get_limit(self) -> int:
        return self._limit


class PinnedMemoryPool:
    def free_all_blocks(self) -> None:
        """Nothing is kept."""


class PinnedMemoryPointer(mmap.mmap):
    """Host memory that the device can use; a buffer, as CuPy's is."""

    def __new__(cls, size: int) -> "PinnedMemoryPointer":
        self = super().__new__(cls, -1, size)
        self.ptr = ctypes.addressof(ctypes.c_char.from_buffer(self))
        self.mem = Region(self.ptr, size)
        self.mem.register()
        return self

    def size(self) -> int:
        return len(self)


def alloc_pinned_memory(size: int) -> PinnedMemoryPointer:
    """At least `size` bytes: like CuPy's, a power of two."""
    return PinnedMemoryPointer(max(512, 1 << (size - 1).bit_length()))


def host_register(ptr: int, size: int, flags: int) -> None:
    """cudaHostRegister."""
    if size <= 0:
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
    """The memory of the device, or registered with it, in which `address` lies."""
    at = bisect_right(_starts, address)
    region = _regions.get(_starts[at - 1]) if at else None
    return region if region is not None and address < region.ptr + region.size else None


def reachable(address: int, size: int) -> Region:
    """`region_of` so many bytes; raises if the device cannot reach all of them."""
    region = region_of(address)
    if region is None or address + size > region.ptr + region.size:
        raise CUDARuntimeError(
            f"cudaErrorIllegalAddress: {size} bytes at {address:#x} are not in any memory "
            "that the device can reach (freed, never registered, or too short)"
        )
    return region


class _Interface:
    def __init__(self, **fields: Any) -> None:
        self.__array_interface__ = {"version": 3, **fields}


def host_view(
    address: int, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...] | None = None
) -> np.ndarray:
    """A NumPy array that owns nothing, on memory at `address`."""
    if 0 in shape:
        return np.empty(shape, dtype)
    fields = {"data": (address, False), "shape": shape, "typestr": dtype.str, "strides": strides}
    return np.asarray(_Interface(**fields))


def _living_bytes() -> int:
    return sum(each.size for each in list(_regions.values()) if isinstance(each, Memory))


def _forget(start: int, *mapping: int) -> None:
    _starts.remove(start)
    if mapping:
        _libc.munmap(*mapping)


def _map(size: int) -> tuple[int, int, int]:
    """Fresh pages for `size` bytes: where these begin, and the mapping."""
    page = mmap.PAGESIZE
    readable = -(-size // page) * page
    anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    begin = _libc.mmap(None, readable + page, mmap.PROT_READ | mmap.PROT_WRITE, anonymous, -1, 0)
    if begin == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _libc.mprotect(begin + readable, page, 0)
    ptr = begin + readable - -(-size // ALIGNMENT) * ALIGNMENT
    ctypes.memset(ptr, 0xFF, min(begin + readable - ptr, SPOILT))
    return ptr, begin, readable + page


_starts: list[int] = []  # of all that live, in order
_regions: "weakref.WeakValueDictionary[int, Region]" = weakref.WeakValueDictionary()
_registered: dict[int, Region] = {}
pool = MemoryPool()
pinned_pool = PinnedMemoryPool()
