"""Compiled kernels on disk: Numba's cache of a function, where a failure to write is no error."""

import logging
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
        global _warned
        try:
            super().save_overload(sig, data)
        except OSError as error:  # a full disk, a limit on the size of files
            if not _warned:
                _warned = True
                why = error.strerror or error
                logging.warning("compiled kernels cannot be kept in %s: %s", self.cache_path, why)
