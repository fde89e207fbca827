"""The memory that malloc keeps for the next arrays of a process."""

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
