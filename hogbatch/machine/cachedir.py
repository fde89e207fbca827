"""The cache directory: compiled kernels, parsed data and device profiles, kept between runs.

It is the first of these that is set: `HOGBATCH_CACHE`, `NUMBA_CACHE_DIR`/hogbatch,
`XDG_CACHE_HOME`/hogbatch, ~/.cache/hogbatch. If the user cannot write it, as in many containers, or
other users can, it is a private directory below the system's temporary directory, the same in all
processes of a user. Compiled code and pickles (of Numba) are loaded from the cache, so nobody else
may place files in it.
"""

import os
import stat
import tempfile
from pathlib import Path
from typing import NamedTuple

from hogbatch.errors import UsageError
from hogbatch.version import version

ADVICE = "set HOGBATCH_CACHE to a writable directory"


class CacheRoot(NamedTuple):
    """A writable cache directory, which may not exist yet."""

    path: Path
    note: str | None  # why it is not the usual directory


def cache_root() -> Path:
    """Return the cache directory; see `find_cache_root`."""
    return find_cache_root().path


def find_cache_root() -> CacheRoot:
    """Find the cache directory.

    Raises UsageError if neither the usual directory nor a temporary one is usable.
    """
    try:
        usual = _usual()
    except RuntimeError:  # no HOME, and no entry for this user in the user database
        return _temporary("there is no home directory")
    existing = next(path for path in (usual, *usual.parents) if os.path.exists(path))
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        return _temporary(f"{existing} is not a directory writable by this user")
    if reason := exposure(usual):
        return _temporary(reason)
    return CacheRoot(usual, None)


def exposure(path: Path) -> str | None:
    """Return how another user could place files in the directory `path`, or None.

    Only this user and root may own it and the directories above it, or write to them. Other users
    may write to a sticky directory above it, such as /tmp, where they cannot replace what is there.
    Directories that do not exist yet are skipped.
    """
    trusted, real = {0, os.geteuid()}, Path(os.path.realpath(path))
    for each in dict.fromkeys((path, *path.parents, real, *real.parents)):
        try:
            state = each.lstat()
        except OSError:
            continue
        if state.st_uid not in trusted:
            return f"{each} belongs to another user ({state.st_uid})"
        replaceable = each == real or not state.st_mode & stat.S_ISVTX
        if not stat.S_ISLNK(state.st_mode) and state.st_mode & 0o022 and replaceable:
            mode = stat.filemode(state.st_mode)
            return f"other users can write to {each} ({mode}; chmod go-w would change that)"
    return None


def make_directory(path: Path) -> None:
    """Create `path` and the missing directories above it for this user only; may raise OSError.

    `Path.mkdir` would create those above it as the umask allows.
    """
    for each in reversed(path.parents):
        if not each.exists():
            each.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)


def _usual() -> Path:
    """Return the directory set by the environment; RuntimeError without a home directory."""
    if chosen := os.environ.get("HOGBATCH_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    return (Path(base).absolute() if base else Path.home() / ".cache") / "hogbatch"


def _temporary(reason: str) -> CacheRoot:
    """Return the temporary cache directory, which is used because of `reason`."""
    path = private_temporary_directory(f"hogbatch-{version()}-{os.geteuid()}")
    note = f"compiled kernels and data are kept in {path}; set HOGBATCH_CACHE to change this"
    return CacheRoot(path, f"{reason}: {note}")


def private_temporary_directory(name: str, advice: str = ADVICE) -> Path:
    """Return a private directory below the system's temporary directory; create it if necessary.

    Raises UsageError if that fails, or if another user may have put files there, because code is
    loaded from it; `advice` is the end of the message.
    """
    try:
        path = Path(tempfile.gettempdir()) / name
        path.mkdir(mode=0o700, exist_ok=True)
        state = path.lstat()
    except OSError as error:
        raise UsageError(
            f"expected a writable directory for compiled kernels; got none, not even a temporary "
            f"one ({error.strerror}): {advice}"
        ) from None
    private = stat.S_ISDIR(state.st_mode) and not state.st_mode & 0o077
    if not private or state.st_uid != os.geteuid():
        raise UsageError(
            f"expected a directory of this user with mode 0700 at {path}; got "
            f"{stat.filemode(state.st_mode)} of user {state.st_uid}: remove it, or {advice}"
        )
    if reason := exposure(path):
        raise UsageError(f"expected a directory that only this user can change; {reason}: {advice}")
    return path
