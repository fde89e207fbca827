"""The memory pages of a segment: their NUMA node, size and mapping.

A batch gathers rows from all over a large array, so with pages of 4 KiB nearly every row is a TLB
miss (docs/threads.md). Linux maps a huge page only if address and file offset agree modulo its
size, and Python's `mmap` does not accept an address, so this module calls mmap(2) through ctypes.
"""

import ctypes
import mmap
import os
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from hogbatch.store.layout import HUGE_PAGE, stripes

MADV_COLLAPSE = 25  # linux/mman.h, since 6.1; the mmap module of CPython 3.11 lacks it
PROT_NONE = 0
MAP_FIXED = 0x10
MAP_NORESERVE = 0x4000
MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def allocate(fd: int, size: int, nodes: Sequence[frozenset[int]]) -> None:
    """Allocate the memory of `fd` now, spread over NUMA nodes given by their cores.

    Linux allocates a page on the node of the thread that first requests it. OSError if there is
    not enough memory.
    """
    if len(nodes) < 2:
        os.posix_fallocate(fd, 0, size)
        return

    def take(cores: frozenset[int], parts: list[tuple[int, int]]) -> None:
        os.sched_setaffinity(0, cores)  # only this thread, which ends with the pool
        for offset, length in parts:
            os.posix_fallocate(fd, offset, length)

    with ThreadPoolExecutor(len(nodes)) as pool:
        jobs = zip(nodes, stripes(size, len(nodes)), strict=True)
        futures = [pool.submit(take, cores, parts) for cores, parts in jobs]
    for future in futures:
        future.result()


def map_shared(fd: int, size: int, writable: bool, *, huge_pages: bool = True) -> NDArray[np.uint8]:
    """Map the first `size` bytes of `fd` at a multiple of 2 MiB; unmapped with the last view.

    OSError if the kernel refuses; PermissionError if `fd` is open for reading only.
    """
    size_mapped = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    room = size_mapped + HUGE_PAGE
    reserved = _mmap(None, room, PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    start = -(-reserved // HUGE_PAGE) * HUGE_PAGE
    end = start + size_mapped
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    try:
        _mmap(start, size, protection, mmap.MAP_SHARED | MAP_FIXED, fd)
    except OSError:
        _libc.munmap(reserved, room)
        raise
    if start > reserved:
        _libc.munmap(reserved, start - reserved)
    _libc.munmap(end, reserved + room - end)
    advice = mmap.MADV_HUGEPAGE if huge_pages else mmap.MADV_NOHUGEPAGE
    _libc.madvise(start, size_mapped, advice)  # may fail: only an optimization
    memory = (ctypes.c_uint8 * size).from_address(start)
    view = memoryview(memory)
    # Not at exit: threads in kernels may still use it.
    weakref.finalize(memory, _libc.munmap, start, size_mapped).atexit = False
    return np.frombuffer(view if writable else view.toreadonly(), np.uint8)


def collapse(memory: NDArray[np.uint8]) -> bool:
    """Move memory from `map_shared` into huge pages for all processes; False if not all moved.

    This is the only method that works with the usual setting shmem_enabled = never. The pages stay
    on their NUMA node.
    """
    result = _libc.madvise(memory.ctypes.data, memory.size, MADV_COLLAPSE)
    return bool(result == 0)


def unmap(memory: NDArray[np.uint8]) -> None:
    """Unmap the pages of memory from `map_shared`; a later access maps them again."""
    _libc.madvise(memory.ctypes.data, memory.size, mmap.MADV_DONTNEED)


def make_inaccessible(memory: NDArray[np.uint8]) -> None:
    """Replace memory from `map_shared`, in this mapping only, by addresses that nobody may access.

    Not even other processes with process_vm_writev(2), which is given addresses. The addresses are
    not used for anything else as long as a view exists; an access of a view is a SIGSEGV. OSError
    if the kernel refuses.
    """
    size = -(-memory.size // mmap.PAGESIZE) * mmap.PAGESIZE
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE
    _mmap(memory.ctypes.data, size, PROT_NONE, flags, -1)


def _mmap(address: int | None, size: int, protection: int, flags: int, fd: int) -> int:
    got = _libc.mmap(address, size, protection, flags, fd, 0)
    if got == MAP_FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(got)
