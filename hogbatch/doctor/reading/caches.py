"""Reads facts about the cache directories. Creates none of them."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from hogbatch.doctor.facts import CacheFacts, CacheFolder
from hogbatch.doctor.reading.attempt import attempt, existing_ancestor
from hogbatch.jit import MAX_CACHE_BYTES, cache_directory
from hogbatch.machine.cachedir import find_cache_root

KERNEL_SUFFIXES: Final = (".nbc", ".o")  # code compiled by Numba, and micro-kernels


def read_caches() -> CacheFacts:
    """Return facts about the directories of compiled kernels and of parsed data."""
    return CacheFacts(
        note=attempt(lambda: find_cache_root().note),
        kernels=attempt(_kernels),
        data=attempt(_data),
    )


def _kernels() -> CacheFolder:
    return describe_folder(cache_directory(), KERNEL_SUFFIXES, MAX_CACHE_BYTES)


def _data() -> CacheFolder:
    from hogbatch.data.cache import SUFFIX, min_free_bytes  # here: it needs NumPy

    path = find_cache_root().path / "data"
    total = shutil.disk_usage(existing_ancestor(path)).total
    return describe_folder(path, (SUFFIX,), min_free_bytes(total))


def describe_folder(path: Path, suffixes: tuple[str, ...], min_free: int) -> CacheFolder:
    """Describe a directory that may not exist; only files with these `suffixes` count."""
    existing = existing_ancestor(path)
    sizes = list(_sizes(path, suffixes))
    return CacheFolder(
        path=str(path),
        files=len(sizes),
        size=sum(sizes),
        writable=existing.is_dir() and os.access(existing, os.W_OK | os.X_OK),
        free=shutil.disk_usage(existing).free,
        min_free=min_free,
    )


def _sizes(path: Path, suffixes: tuple[str, ...]) -> Iterator[int]:
    for file in path.rglob("*"):
        if file.suffix in suffixes:
            with suppress(OSError):  # another process may have removed it
                yield file.stat().st_size
