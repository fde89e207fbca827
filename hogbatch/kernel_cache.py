"""Compiled kernels on disk: Numba's cache of a function, where a failure to write is no error."""

import logging
from collections.abc import Callable
from typing import Any

from numba.core.caching import FunctionCache

misses = 0  # functions that were not in the cache, and so are compiled by this process
_warned = False


class KernelCache(FunctionCache):
    """Numba's cache of one function."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        global misses
        found = super().load_overload(sig, target_context)
        misses += found is None
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:  # a full disk, a limit on the size of files
            _warn(f"compiled kernels cannot be kept in {self.cache_path}: {error.strerror}")


def keep(compiled: Any, function: Callable[..., Any]) -> None:
    """Have `compiled` look into the cache of `function`, as Numba's `enable_caching` does."""
    try:
        compiled._cache = KernelCache(function)
    except RuntimeError as error:  # not even an empty file can be made there
        _warn(f"compiled kernels cannot be kept: {error}")


def _warn(sentence: str) -> None:
    """Say it once in this process."""
    global _warned
    if not _warned:
        _warned = True
        logging.warning("%s", sentence)
