"""Compilation of all Numba kernels, and the cache of compiled kernels.

The name of the cache directory is a hash of the sources of all compiled modules: Numba notices a
change in the file of a function, but not in the files of the functions that it calls.
"""

import logging
import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, Final

from hogbatch.machine.cachedir import cache_root, exposure, make_directory

COMPILED_SOURCES = (  # with the tables that compiled constants are derived from
    "jit.py",
    "config/layers.py",
    "config/losses.py",
    "config/optimizers.py",
    "kernels/contract.py",
    "kernels/dropout.py",
    "kernels/layers.py",
    "kernels/cpu/*.py",
    "kernels/cpu/lsh/*.py",
    "data/parse/*.py",
)
MAX_CACHE_BYTES: Final = 1 << 26  # upper bound for all compiled kernels together
MAX_FILE_BYTES: Final = 1 << 23  # upper bound for one of their files
# Environment variable that forces the vector width of the kernels, in floats: 4, 8 or 16.
VECTOR_VARIABLE: Final = "HOGBATCH_VECTOR"
BOUNDS_VARIABLE: Final = "NUMBA_BOUNDSCHECK"  # if it is 1, kernels check their indices


@cache
def cache_directory() -> Path:
    """Return the directory of the kernels compiled from the current sources."""
    package = Path(__file__).parent
    variables = [os.environ.get(name, "") for name in (VECTOR_VARIABLE, BOUNDS_VARIABLE)]
    digest = blake2b("".join(variables).encode(), digest_size=8)
    for pattern in COMPILED_SOURCES:
        for source in sorted(package.glob(pattern)):
            digest.update(source.read_bytes())
    return cache_root() / digest.hexdigest()


# Full fastmath would let LLVM assume that no value is NaN and delete every isfinite().
FASTMATH: Final = {"contract", "reassoc", "arcp", "afn", "nsz"}

_kernels: list[Any] = []  # all that is compiled or loaded in this process
_lock = Lock()


class Kernel:
    """A compiled function that Python and other kernels can call.

    A call from Python needs code that converts the arguments. Compiling that for every kernel would
    take a seventh of the time, so there are two versions, each compiled when it is first called.
    Without that code, Numba's own functions end the process when Python calls them.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.py_func = function
        self._options = options
        self.for_kernels = _compiled(function, "inner", no_cpython_wrapper=True, **options)

    @cached_property
    def for_python(self) -> Any:
        return _compiled(self.py_func, "outer", **self._options)

    def __call__(self, *arguments: Any) -> Any:
        return self.for_python(*arguments)


@cache
def _register_type() -> None:
    """Tell Numba which compiled function a kernel calls when it calls a `Kernel`."""
    from numba import types
    from numba.extending import typeof_impl

    @typeof_impl.register(Kernel)
    def type_of(called: Kernel, _context: Any) -> Any:
        return types.Dispatcher(called.for_kernels)


def _compiled(function: Callable[..., Any], folder: str, **options: Any) -> Any:
    """Compile `function` on its first call in a process, or load it from a folder of the cache.

    The files of both versions of a kernel have the same names.
    """
    import numba  # here, because callers that only need the cache directory do not need Numba

    settings: Any = numba.config
    with _lock:  # threads may be the first to call a kernel
        previous = settings.CACHE_DIR
        settings.CACHE_DIR = str(cache_directory() / folder)  # not for other packages
        try:
            njit: Any = numba.njit  # its annotations lack no_cfunc_wrapper
            compiled = njit(
                nogil=True,
                cache=_cache_usable(),
                error_model="numpy",
                no_cfunc_wrapper=True,  # nothing calls kernels by pointers; it takes a tenth
                **options,
            )(function)
        finally:
            settings.CACHE_DIR = previous
    _kernels.append(compiled)
    return compiled


def kernel(
    function: Callable[..., Any],
    fastmath: set[str] | bool = FASTMATH,
    forceinline: bool = False,
) -> Any:
    """Compile `function` on its first call in a process, or load it from the cache."""
    _register_type()
    return Kernel(function, {"fastmath": fastmath, "forceinline": forceinline})


def compiles() -> bool:
    """Return whether a kernel was missing from the cache, so that this process compiles."""
    return any(compiled.stats.cache_misses for compiled in _kernels)


@cache
def _cache_usable() -> bool:
    """Return whether the cache can be used; log a warning if it cannot."""
    if (problem := cache_problem()) is not None:
        logging.warning(
            "compiled kernels cannot be cached in %s, so every worker compiles its own: %s",
            cache_directory(),
            problem,
        )
    return problem is None


def cache_problem() -> str | None:
    """Create the cache; return why it cannot be used, or None if it can.

    Numba raises an exception during training when it fails to write to its cache. Free space is
    therefore required, unless the cache already contains kernels, which only need to be read.
    """
    directory = cache_directory()
    try:
        make_directory(directory)
        if reason := exposure(directory):  # created in the meantime, or by an earlier version
            return reason
        with tempfile.TemporaryFile(dir=directory):
            free_bytes = shutil.disk_usage(directory).free
        if any(directory.iterdir()):
            return None
    except OSError as error:
        return error.strerror or str(error)
    file_limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if file_limit != resource.RLIM_INFINITY and file_limit < MAX_FILE_BYTES:
        return "the file size limit is too low"
    return None if free_bytes >= MAX_CACHE_BYTES else "the disk is nearly full"


def exact(function: Callable[..., Any]) -> Any:
    """Compile `function` as `kernel` does, but without fast math, because its rounding matters."""
    return kernel(function, fastmath=False)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile `function` as `kernel` does, and as a part of each kernel that calls it.

    A call with dozens of arrays takes up to half a microsecond, for their reference counts.
    """
    return _compiled(function, "inner", fastmath=FASTMATH, inline="always")


def reduction(function: Callable[..., Any]) -> Any:
    """Compile `function`, which sums floats in an order that LLVM chooses, into all its callers.

    Otherwise LLVM optimizes one copy of it for itself and one in the library of each kernel that
    calls it. These may sum in different orders, and which of them a process calls depends on
    whether the kernels were compiled in this process or loaded from the cache.
    """
    return kernel(function, forceinline=True)
