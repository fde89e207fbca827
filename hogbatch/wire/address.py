"""Where the coordinator of a run directory is to be found, and that there is only one.

RUN_DIR/coordinator.json says it; the coordinator holds a lock on that file (flock) as long as it
lives. The kernel drops the lock with the process, so a stale file never bars the next coordinator.
libzmq itself would let a second process take over an address without a word.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Self

import msgspec

from hogbatch.errors import RunDirectoryHeld, UsageError

NAME = "coordinator.json"
SOCKET = "control.socket"  # of the control plane, while it is bound


Key = Annotated[str, msgspec.Meta(min_length=40, max_length=40)]  # 32 bytes in Z85 (RFC 32)


class Keys(msgspec.Struct, frozen=True):
    """What a worker needs to come in over tcp: a file that holds it must be the user's alone."""

    server: Key  # the coordinator's public key
    public: Key  # of the pair that all workers of a run have
    secret: Key


class Address(msgspec.Struct, frozen=True):
    """How to reach a coordinator, and since when it lives (ISO 8601, for people)."""

    run: str
    pid: int
    control: str  # ZeroMQ endpoint
    store: str  # path of the socket that hands the segments over
    since: str
    keys: Keys | None = None  # None: whoever can connect is let in


def make_private(run_dir: Path) -> None:
    """Make `run_dir` with mode 0700; UsageError if it is there and others may enter it."""
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    run_dir.mkdir(mode=0o700, exist_ok=True)
    mode = run_dir.stat().st_mode & 0o777
    if mode & 0o077:
        raise UsageError(
            f"expected a run directory with mode 0700; got {mode:04o} for {run_dir}: "
            f"run 'chmod 700 {run_dir}', or choose another --run-dir"
        )


class RunLock:
    """The right to coordinate in a run directory, held until `close` or the process's end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, run_dir: Path) -> Self:
        """Hold `run_dir`, made with mode 0700 if need be; RunDirectoryHeld if another does."""
        try:
            make_private(run_dir)
            while True:
                fd = os.open(run_dir / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                os.fchmod(fd, 0o600)  # if it was there already
                _lock(fd, run_dir)
                if _is_named(fd, run_dir / NAME):
                    return cls(fd)
                os.close(fd)  # its holder removed it just before we got the lock
        except OSError as error:
            raise UsageError(
                f"cannot use {run_dir} as run directory: {error.strerror}; choose another --run-dir"
            ) from None

    def publish(self, address: Address) -> None:
        """Let workers find the coordinator; UsageError if the file cannot be written."""
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, msgspec.json.encode(address), 0)
        except OSError as error:
            raise UsageError(
                f"cannot write {NAME} in the run directory: {error.strerror}; make room, or choose "
                "another --run-dir"
            ) from None

    def close(self) -> None:
        """Withdraw the address and let go of the directory."""
        with suppress(OSError):  # a file system that has become read-only
            os.ftruncate(self._fd, 0)
        os.close(self._fd)


def find(run_dir: Path) -> Address:
    """Return the address of the coordinator in `run_dir`.

    UsageError if none is published, or if it comes with keys that others may have read.
    """
    try:
        with (run_dir / NAME).open("rb") as file:
            address, mode = _parse(file.read()), os.fstat(file.fileno()).st_mode & 0o777
    except OSError as error:
        raise UsageError(f"{run_dir} is no run directory: {NAME}: {error.strerror}") from None
    if address is None:
        raise UsageError(f"no coordinator lives in {run_dir}; start one with hogbatch coordinator")
    if address.keys and mode & 0o077:
        raise UsageError(
            f"expected mode 0600 for {run_dir / NAME}, which holds keys; got {mode:04o}: others may"
            " have read them, so start the run anew"
        )
    return address


def _lock(fd: int, run_dir: Path) -> None:
    """Lock the open address file; RunDirectoryHeld, and `fd` closed, if another process has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held = _parse(os.pread(fd, 65536, 0))
        os.close(fd)
        by = f" by process {held.pid} since {held.since}" if held else ""
        raise RunDirectoryHeld(
            f"run directory {run_dir} is held{by}; choose another --run-dir"
        ) from None


def _is_named(fd: int, path: Path) -> bool:
    """Whether the open file is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _parse(text: bytes) -> Address | None:
    try:
        return msgspec.json.decode(text, type=Address)
    except msgspec.MsgspecError:
        return None
