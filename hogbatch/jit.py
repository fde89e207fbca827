"""How everything that Numba compiles is compiled, and where the result is kept.

The cache directory is named after the compiled modules' own sources: Numba notices a change in the
file of a function, but not in the files of the functions it calls. `HOGBATCH_CACHE` moves it.
"""

import os
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

COMPILED = (
    *("kernels/contract.py", "kernels/cpu/*.py", "kernels/cpu/lsh/*.py"),
    "data/parse/*.py",
)
VECTOR = "HOGBATCH_VECTOR"  # forces the vector width of kernels, in floats: 4, 8 or 16


def cache_root() -> Path:
    """Return the directory of all that hogbatch keeps between runs."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("HOGBATCH_CACHE") or home / "hogbatch")


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

    settings: Any = numba.config
    elsewhere = settings.CACHE_DIR
    settings.CACHE_DIR = str(cache_directory())  # only for this function: others have their own
    try:
        return numba.njit(nogil=True, cache=True, fastmath=fastmath, error_model="numpy")(function)
    finally:
        settings.CACHE_DIR = elsewhere


def exact(function: Callable[..., Any]) -> Any:
    """`kernel` for arithmetic whose very rounding matters."""
    return kernel(function, fastmath=False)
