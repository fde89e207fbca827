"""Temporary directories that are removed after any end of the processes that use them."""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "hogbatch-tmp-"
KEPT: Final = ".kept"  # a directory with this file is not removed


class TemporaryDirectory:
    """The directory `path` with mode 0700, which this process uses until :meth:`close`.

    It is locked meanwhile (flock(2)). A killed process leaves its directory behind, but not the
    lock, and the next process of the same user that creates a directory removes it.
    """

    def __init__(self) -> None:
        _remove_unlocked()
        lock = None
        while lock is None:  # another process may remove the directory before it is locked
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            lock = _lock(self.path)
        self._lock = lock

    def keep(self) -> None:
        """Leave the directory and all that it contains to the user. OSError if that fails."""
        (self.path / KEPT).touch()

    def close(self) -> None:
        """Remove the directory and all that it contains, unless it is kept."""
        if not (self.path / KEPT).exists():
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def _remove_unlocked() -> None:
    """Remove the directories of this user that no process has locked."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            own = path.lstat().st_uid == os.geteuid() and not (path / KEPT).exists()
            if own and (lock := _lock(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _lock(path: Path) -> int | None:
    """Lock the directory; None if another process has locked or removed it. OSError otherwise."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_own = os.path.samestat(os.fstat(lock), path.stat())
    except (BlockingIOError, FileNotFoundError):
        is_own = False
    if is_own:
        return lock
    os.close(lock)
    return None
