"""The pages behind a segment: on which NUMA node they lie, how large they are, how they are mapped.

One entry of the processor's address cache covers one page. A batch gathers rows from all over a
large array, so with pages of 4 KiB nearly every row misses that cache, with 2 MiB hardly any does.
A kernel maps a huge page only where address and file offset agree modulo its size; the addresses
that mmap(2) chooses need not, and Python's `mmap` takes none. Hence ctypes.
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
MAP_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def allocate(fd: int, size: int, nodes: Sequence[frozenset[int]]) -> None:
    """Take the memory of `fd` now, spread over the NUMA nodes with these cores.

    Linux puts a page on the node of the thread that first asks for it. OSError when there is
    too little.
    """
    if len(nodes) < 2:
        os.posix_fallocate(fd, 0, size)
        return

    def take(cores: frozenset[int], parts: list[tuple[int, int]]) -> None:
        os.sched_setaffinity(0, cores)  # of this thread, which ends with the pool
        for offset, length in parts:
            os.posix_fallocate(fd, offset, length)

    with ThreadPoolExecutor(len(nodes)) as crew:
        jobs = zip(nodes, stripes(size, len(nodes)), strict=True)
        taken = [crew.submit(take, cores, parts) for cores, parts in jobs]
    for each in taken:
        each.result()


def map_shared(fd: int, size: int, writable: bool) -> NDArray[np.uint8]:
    """The first `size` bytes of `fd`, mapped at a multiple of 2 MiB; the last view unmaps them.

    OSError if the kernel refuses, a PermissionError where a seal forbids it.
    """
    size_mapped = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    room = size_mapped + HUGE_PAGE
    reserved = _mmap(None, room, PROT_NONE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    start = -(-reserved // HUGE_PAGE) * HUGE_PAGE
    end = start + size_mapped
    rights = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    try:
        _mmap(start, size, rights, mmap.MAP_SHARED | MAP_FIXED, fd)
    except OSError:
        _libc.munmap(reserved, room)
        raise
    if start > reserved:
        _libc.munmap(reserved, start - reserved)
    _libc.munmap(end, reserved + room - end)
    _libc.madvise(start, size_mapped, mmap.MADV_HUGEPAGE)  # may be refused; it is only faster
    memory = (ctypes.c_uint8 * size).from_address(start)
    view = memoryview(memory)
    # Not at exit: threads inside kernels may still be using it.
    weakref.finalize(memory, _libc.munmap, start, size_mapped).atexit = False
    return np.frombuffer(view if writable else view.toreadonly(), np.uint8)


def collapse(memory: NDArray[np.uint8]) -> bool:
    """Move what `map_shared` has mapped into huge pages, for all who map it; False if not all.

    Alone this works at the usual setting of shared memory, shmem_enabled = never. The pages stay
    on their NUMA node.
    """
    asked = _libc.madvise(memory.ctypes.data, memory.size, MADV_COLLAPSE)
    return bool(asked == 0)


def _mmap(address: int | None, size: int, rights: int, flags: int, fd: int) -> int:
    got = _libc.mmap(address, size, rights, flags, fd, 0)
    if got == MAP_FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(got)
