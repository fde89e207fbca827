"""How everything that Numba compiles is compiled, and where the result is kept.

The cache directory is named after the compiled modules' own sources: Numba notices a change in the
file of a function, but not in the files of the functions it calls.
"""

import os
import sys
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from hogbatch.cachedir import cache_root

COMPILED = (
    *("kernels/contract.py", "kernels/cpu/*.py", "kernels/cpu/lsh/*.py"),
    "data/parse/*.py",
)
VECTOR = "HOGBATCH_VECTOR"  # forces the vector width of kernels, in floats: 4, 8 or 16


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


def kernel(function: Callable[..., Any], fastmath: set[str] | bool = FASTMATH) -> Any:
    """Compile `function` on its first call in a process, or load it from the cache."""
    import numba  # here: who only asks where the cache is has no use for it

    from hogbatch.kernel_cache import keep

    settings: Any = numba.config
    compiled: Any = numba.njit(nogil=True, fastmath=fastmath, error_model="numpy")(function)
    elsewhere = settings.CACHE_DIR
    settings.CACHE_DIR = str(cache_directory())  # only for this function: others have their own
    try:
        keep(compiled, function)
    finally:
        settings.CACHE_DIR = elsewhere
    return compiled


def compiles() -> bool:
    """Whether this process has found a kernel missing from the cache, and so compiles."""
    module = sys.modules.get("hogbatch.kernel_cache")
    return module is not None and module.misses > 0


def exact(function: Callable[..., Any]) -> Any:
    """`kernel` for arithmetic whose very rounding matters."""
    return kernel(function, fastmath=False)
