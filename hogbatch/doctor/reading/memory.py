"""Reads facts about memory. `root` replaces / in tests."""

import os
import re
from pathlib import Path
from typing import Final

from hogbatch.doctor.facts import MemoryFacts
from hogbatch.doctor.reading.attempt import attempt, read_line, reason
from hogbatch.machine.linux import (
    ROOT,
    free_memory,
    memory_limit,
    memory_quota,
    total_memory,
)

HUGE_PAGE_FOLDER: Final = "sys/kernel/mm/transparent_hugepage"


def read_memory(root: Path = ROOT) -> MemoryFacts:
    """Return facts about memory; allocates 2 MiB of shared memory for a moment."""
    return MemoryFacts(
        total=attempt(lambda: total_memory(root)),
        free=attempt(lambda: free_memory(root)),
        limit=attempt(lambda: memory_limit(root)),
        left=attempt(lambda: memory_quota(root)),
        shm=attempt(lambda: _size(root / "dev/shm")),
        memfd_error=try_memfd(),
        huge_pages=attempt(try_huge_page),
        transparent=attempt(lambda: read_setting(root / HUGE_PAGE_FOLDER / "enabled")),
        shmem=attempt(lambda: read_setting(root / HUGE_PAGE_FOLDER / "shmem_enabled")),
    )


def read_setting(path: Path) -> str:
    """Return the chosen one of the values in a file such as "always [madvise] never"."""
    line = read_line(path)
    match = re.search(r"\[(\w+)\]", line)
    return match[1] if match else line


def try_memfd() -> str:
    """Create anonymous shared memory; return why that fails, or ""."""
    try:
        os.close(os.memfd_create("hogbatch-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    except OSError as error:
        return reason(error)
    return ""


def try_huge_page() -> bool:
    """Return whether shared memory can be moved into a huge page."""
    from hogbatch.store.layout import HUGE_PAGE  # here: these modules need NumPy
    from hogbatch.store.pages import collapse, map_shared

    fd = os.memfd_create("hogbatch-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, HUGE_PAGE)
        return collapse(map_shared(fd, HUGE_PAGE, writable=True))
    finally:
        os.close(fd)


def _size(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize
