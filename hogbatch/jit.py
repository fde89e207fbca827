"""How everything that Numba compiles is compiled, and where the result is kept.

The cache directory is named after the compiled modules' own sources: Numba notices a change in the
file of a function, but not in the files of the functions it calls.
"""

import logging
import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from hogbatch.machine.cachedir import cache_root

COMPILED = (  # with the tables that compiled constants are derived from
    *("model/losses.py", "model/optimizers.py"),
    *("kernels/contract.py", "kernels/cpu/*.py", "kernels/cpu/lsh/*.py"),
    "data/parse/*.py",
)
KERNEL_BYTES: Final = 1 << 26  # that all compiled kernels take at most,
FILE_BYTES: Final = 1 << 23  # and one of their files
VECTOR: Final = "HOGBATCH_VECTOR"  # forces the vector width of kernels, in floats: 4, 8 or 16


@cache
def cache_directory() -> Path:
    """Return the directory of compiled kernels for these very sources."""
    package = Path(__file__).parent
    digest = blake2b(os.environ.get(VECTOR, "").encode(), digest_size=8)
    for pattern in COMPILED:
        for source in sorted(package.glob(pattern)):
            digest.update(source.read_bytes())
    return cache_root() / digest.hexdigest()


# Full fastmath would let LLVM assume that no value is NaN and delete every isfinite().
FASTMATH: Final = {"contract", "reassoc", "arcp", "afn", "nsz"}

_kernels: list[Any] = []  # all that this process has defined


def kernel(function: Callable[..., Any], fastmath: set[str] | bool = FASTMATH) -> Any:
    """Compile `function` on its first call in a process, or load it from the cache."""
    import numba  # here: who only asks where the cache is has no use for it

    settings: Any = numba.config
    elsewhere = settings.CACHE_DIR
    settings.CACHE_DIR = str(cache_directory())  # only for this function: others have their own
    try:
        compiled: Any = numba.njit(
            nogil=True, cache=_can_keep_kernels(), fastmath=fastmath, error_model="numpy"
        )(function)
    finally:
        settings.CACHE_DIR = elsewhere
    _kernels.append(compiled)
    return compiled


def compiles() -> bool:
    """Whether this process has found a kernel missing from the cache, and so compiles."""
    return any(compiled.stats.cache_misses for compiled in _kernels)


@cache
def _can_keep_kernels() -> bool:
    """Whether the cache can be used; logs a warning if it cannot.

    Numba raises an exception in the middle of the work when it fails to write to its cache, so room
    is required unless there are kernels already, which need only be read.
    """
    directory = cache_directory()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            room = shutil.disk_usage(directory).free
        filled = any(directory.iterdir())
    except OSError as error:
        problem = error.strerror
    else:
        largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        small = largest != resource.RLIM_INFINITY and largest < FILE_BYTES
        if filled or (room >= KERNEL_BYTES and not small):
            return True
        problem = "files may not be as large" if small else "the disk is nearly full"
    logging.warning(
        "compiled kernels are not kept in %s, and every worker compiles its own: %s",
        directory,
        problem,
    )
    return False


def exact(function: Callable[..., Any]) -> Any:
    """`kernel` for arithmetic whose very rounding matters."""
    return kernel(function, fastmath=False)
