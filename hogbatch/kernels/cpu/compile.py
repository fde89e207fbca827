"""How every CPU kernel is compiled, and where the result is kept.

The cache directory is named after the kernels' own sources: Numba notices a change in the file of
a function, but not in the files of the functions it calls. `HOGBATCH_CACHE` moves it.
"""

import os
from hashlib import blake2b
from pathlib import Path


def cache_directory() -> Path:
    """Return the directory of compiled kernels for these very sources."""
    package = Path(__file__).parent
    digest = blake2b(digest_size=8)
    for source in (package.parent / "contract.py", *sorted(package.glob("*.py"))):
        digest.update(source.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("HOGBATCH_CACHE") or home / "hogbatch") / digest.hexdigest()


os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_directory()))  # read when numba is imported

from numba import njit  # noqa: E402

# Full fastmath would let LLVM assume that no value is NaN and delete every isfinite().
FASTMATH = {"contract", "reassoc", "arcp", "afn", "nsz"}

kernel = njit(nogil=True, cache=True, fastmath=FASTMATH, error_model="numpy")
