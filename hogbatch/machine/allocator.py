"""The memory that malloc keeps for the next arrays of a process, or returns to Linux."""

import ctypes
from typing import Final

# Parameters of mallopt(3), from malloc.h of glibc.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_MAX: Final = -4
INT_MAX: Final = (1 << 31) - 1  # the largest value of a parameter


def keep_freed_memory() -> bool:
    """Let malloc keep memory that is freed; return whether the C library supports it (glibc does).

    By default malloc returns large arrays to Linux, which clears their pages when they are used
    again. For a process that repeatedly allocates hundreds of megabytes, this can take longer than
    the computation. Without mmap(2), freed arrays stay in the heap.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, INT_MAX))


def return_freed_memory() -> None:
    """Return memory that was freed to Linux, if the C library supports it (glibc does).

    Many small objects, such as those of a reader, otherwise keep the pages of arrays around them.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
