"""The directory of what hogbatch keeps between runs: compiled kernels, data, device profiles.

It is the first of these that is set: `HOGBATCH_CACHE`, `NUMBA_CACHE_DIR`/hogbatch,
`XDG_CACHE_HOME`/hogbatch, ~/.cache/hogbatch. In a container this user often cannot write it. Then
a private directory under the system's temporary one takes its place; it has the same name in all
processes of a user, so that kernels are compiled once and found again by later runs.
"""

import os
import stat
import tempfile
from pathlib import Path
from typing import NamedTuple

from hogbatch.errors import UsageError

ADVICE = "set HOGBATCH_CACHE to a directory that you can write"


class CacheRoot(NamedTuple):
    """A directory that can be written; it need not exist yet."""

    path: Path
    note: str  # why it is another one than was expected; empty if it is not


def cache_root() -> Path:
    """Return the directory of all that hogbatch keeps between runs; see `find_cache_root`."""
    return find_cache_root().path


def find_cache_root() -> CacheRoot:
    """Find the directory of all that hogbatch keeps between runs.

    UsageError if neither the usual one nor a temporary one can be used.
    """
    try:
        usual = _usual()
    except RuntimeError:  # no HOME, and the user database does not know this user
        return CacheRoot(temporary := _temporary(), _note("there is no home directory", temporary))
    existing = next(path for path in (usual, *usual.parents) if os.path.exists(path))
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return CacheRoot(usual, "")
    refused = f"{existing} is not a directory that this user can write"
    return CacheRoot(temporary := _temporary(), _note(refused, temporary))


def _usual() -> Path:
    """The directory that the environment asks for; RuntimeError if there is no home directory."""
    if chosen := os.environ.get("HOGBATCH_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    return (Path(base).absolute() if base else Path.home() / ".cache") / "hogbatch"


def _temporary() -> Path:
    """A directory of this user alone, under the system's temporary one; made if need be.

    UsageError if it cannot be made, or if another user may have put files there: what is loaded
    from it is run.
    """
    from importlib.metadata import version  # here: it takes longer than all else in this module

    try:
        path = Path(tempfile.gettempdir()) / f"hogbatch-{version('hogbatch')}-{os.geteuid()}"
        path.mkdir(mode=0o700, exist_ok=True)
        state = path.lstat()
    except OSError as error:
        raise UsageError(
            f"expected a directory for compiled kernels that this user can write; got none, not "
            f"even a temporary one ({error.strerror}): {ADVICE}"
        ) from None
    private = stat.S_ISDIR(state.st_mode) and not state.st_mode & 0o077
    if not private or state.st_uid != os.geteuid():
        raise UsageError(
            f"expected a directory of this user with mode 0700 at {path}; got "
            f"{stat.filemode(state.st_mode)} of user {state.st_uid}: remove it, or {ADVICE}"
        )
    return path


def _note(why: str, path: Path) -> str:
    return f"{why}: compiled kernels and data are kept in {path} (HOGBATCH_CACHE chooses another)"
