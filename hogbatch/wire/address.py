"""The address of a run's coordinator, and the lock that allows only one per run directory.

The address is in RUN_DIR/coordinator.json. The coordinator holds a lock on that file (flock) while
it is running. The kernel releases the lock when the process ends, so a stale file never blocks the
next coordinator. libzmq alone would silently let a second process take over an address.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from shlex import quote
from typing import Self

import msgspec

from hogbatch.errors import RunDirectoryHeld, UsageError

NAME = "coordinator.json"
OPEN_ADDRESS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
SOCKET = "control.socket"  # of the control plane; the name exists only while it is being bound


class Address(msgspec.Struct, frozen=True):
    """The address of a coordinator, and its start time (ISO 8601, for display only)."""

    run: str
    pid: int
    control: str  # ZeroMQ endpoint
    store: str  # of the segments; see hogbatch.store.attach
    since: str


def make_private(run_dir: Path) -> None:
    """Create `run_dir` with mode 0700 if it is missing; then `expect_private`."""
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    run_dir.mkdir(mode=0o700, exist_ok=True)
    expect_private(run_dir, run_dir.stat())


def expect_private(run_dir: Path, state: os.stat_result) -> None:
    """UsageError if a run directory belongs to another user, or if other users may enter it.

    Its owner could have placed links or settings in it. `state` is that of the directory.
    """
    if state.st_uid != os.geteuid():
        raise UsageError(
            f"expected a run directory of this user; got one of user {state.st_uid}, {run_dir}: "
            "choose another --run-dir"
        )
    mode = state.st_mode & 0o777
    if mode & 0o077:
        raise UsageError(
            f"expected a run directory with mode 0700; got {mode:04o} for {run_dir}: "
            f"run chmod 700 {quote(str(run_dir))}, or choose another --run-dir"
        )


def bind_unnamed(bind: Callable[[str], object], run_dir: Path, name: str) -> int:
    """Bind a Unix socket in `run_dir`, remove its name, and return a descriptor of its inode.

    `bind` is called with the path. The path uses the directory's descriptor because a socket's path
    is limited to 107 bytes.
    """
    directory = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def remove() -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)

    with ExitStack() as undo:
        undo.callback(os.close, directory)
        remove()  # a coordinator killed between bind and remove leaves the name
        undo.callback(remove)  # also on Ctrl-C during bind
        bind(f"/proc/self/fd/{directory}/{name}")
        return os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=directory)


class RunLock:
    """An exclusive lock on a run directory, held until `close` or until the process ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, run_dir: Path) -> Self:
        """Lock `run_dir`, creating it with mode 0700 if it is missing.

        RunDirectoryHeld if another process holds the lock.
        """
        try:
            make_private(run_dir)
            with ExitStack() as undo:
                directory = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                undo.callback(os.close, directory)
                expect_private(run_dir, os.fstat(directory))  # it may have been replaced
                while True:
                    fd = os.open(NAME, OPEN_ADDRESS, 0o600, dir_fd=directory)
                    os.fchmod(fd, 0o600)  # the file may have existed before
                    _lock(fd, run_dir)
                    if _is_named(fd, directory):
                        return cls(fd)
                    os.close(fd)  # its holder removed the file just before we got the lock
        except OSError as error:
            raise UsageError(
                f"cannot use {run_dir} as run directory: {error.strerror}; choose another --run-dir"
            ) from None

    def publish(self, address: Address) -> None:
        """Write the address for workers to find; UsageError if the file cannot be written."""
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, msgspec.json.encode(address), 0)
        except OSError as error:
            raise UsageError(
                f"cannot write {NAME} in the run directory: {error.strerror}; free disk space, or "
                "choose another --run-dir"
            ) from None

    def close(self) -> None:
        """Remove the address and release the lock."""
        with suppress(OSError):  # the file system may have become read-only
            os.ftruncate(self._fd, 0)
        os.close(self._fd)


def find(run_dir: Path) -> Address:
    """Return the address of the coordinator in `run_dir`.

    UsageError if none is published, or if the directory is not private.
    """
    try:
        address = _parse((run_dir / NAME).read_bytes())
        state = run_dir.stat()
    except OSError as error:
        raise UsageError(f"{run_dir} is not a run directory: {NAME}: {error.strerror}") from None
    expect_private(run_dir, state)
    if address is None:
        raise UsageError(
            f"no coordinator is running in {run_dir}; start one with hogbatch coordinator"
        )
    return address


def _lock(fd: int, run_dir: Path) -> None:
    """Lock the open address file; close `fd` and raise RunDirectoryHeld if it is locked already."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held = _parse(os.pread(fd, 65536, 0))
        os.close(fd)
        by = f" by process {held.pid} since {held.since}" if held else ""
        raise RunDirectoryHeld(
            f"run directory {run_dir} is held{by}; choose another --run-dir"
        ) from None


def _is_named(fd: int, directory: int) -> bool:
    """Whether the open file is still the address in `directory`."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(NAME, dir_fd=directory))
    except FileNotFoundError:
        return False


def _parse(text: bytes) -> Address | None:
    try:
        return msgspec.json.decode(text, type=Address)
    except msgspec.MsgspecError:
        return None
