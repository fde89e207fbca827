"""How a worker gets the segments: one message with their layouts and their descriptors.

The coordinator listens on a Unix socket that has no name on disk: it is bound in the run
directory, held by a descriptor and unlinked at once. Workers connect through
/proc/<coordinator>/fd/<n>, which the kernel opens to the same user only; the credentials of both
sides are checked besides. After any end of the coordinator nothing is left to clean up.

This module does *not* cover how a worker learns the address.
"""

import os
import socket
import struct
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from hogbatch.errors import ProtocolError, UsageError
from hogbatch.store.layout import Layout
from hogbatch.store.segment import Segment
from hogbatch.wire.address import make_private

BACKLOG = 128  # connections that may wait, and the most one `serve` accepts
MAX_BYTES = 1 << 16  # of a catalog: one packet, well below the kernel's default send buffer
MAX_SEGMENTS = 16
NAME = "handover.socket"  # of the socket in the run directory, for an instant


class SegmentRecord(msgspec.Struct, frozen=True):
    """What a worker must know of one segment to attach it."""

    name: str
    layout: Layout
    writable: bool


class Catalog(msgspec.Struct, frozen=True):
    """What goes with the descriptors, which come in the order of `segments`."""

    run: str
    fingerprint: str  # of the dataset
    features: int  # F
    segments: tuple[SegmentRecord, ...]


class Received(NamedTuple):
    """What a worker gets, and from which process."""

    catalog: Catalog
    segments: dict[str, Segment]
    coordinator_pid: int


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a connection, as the kernel tells it."""

    pid: int
    uid: int


def records(segments: Mapping[str, Segment]) -> tuple[SegmentRecord, ...]:
    """Describe segments for a catalog; a sealed one is read-only for workers."""
    return tuple(
        SegmentRecord(name, segment.layout, writable=not segment.sealed)
        for name, segment in segments.items()
    )


class Handover:
    """The coordinator's side. Poll :meth:`fileno`; when it is readable, call :meth:`serve`."""

    def __init__(self, listener: socket.socket, inode: int, catalog: bytes, fds: list[int]) -> None:
        """Take over a bound listener and its inode's descriptor; use :meth:`open`."""
        self.address = f"/proc/{os.getpid()}/fd/{inode}"
        self.refused = 0  # connections of another user, or gone before they were served
        self._listener = listener
        self._inode = inode
        self._catalog = catalog
        self._fds = fds

    @classmethod
    def open(cls, run_dir: Path, catalog: Catalog, segments: Mapping[str, Segment]) -> Self:
        """Listen. `run_dir` is made, mode 0700, if it is not there; the segments stay the caller's.

        Raises UsageError if others may enter the directory, or if it can hold no socket.
        """
        encoded = msgspec.json.encode(catalog)
        if len(encoded) > MAX_BYTES:
            raise ValueError(f"expected a catalog of at most {MAX_BYTES} bytes; got {len(encoded)}")
        fds = [segments[record.name].fd for record in catalog.segments]
        try:
            make_private(run_dir)
            listener, inode = _listen_unnamed(run_dir)
        except OSError as error:
            raise UsageError(
                f"expected a run directory that can hold a Unix socket; got {error.strerror!r} for"
                f" {run_dir}: choose another, on a local disk"
            ) from error
        return cls(listener, inode, encoded, fds)

    def fileno(self) -> int:
        """Readable when somebody waits to be served."""
        return self._listener.fileno()

    def serve(self) -> list[Peer]:
        """Serve everyone who waits; return who got the segments. Never blocks, never raises.

        Nothing is read from a connection, and one packet always fits into the empty buffer of a
        new one, so no behaviour of a client can hold the coordinator up.
        """
        served: list[Peer] = []
        for _ in range(BACKLOG):
            try:
                connection, _ = self._listener.accept()
            except OSError:  # nobody waits, or no descriptor is free and the poller will come back
                break
            with connection:
                served += self._give(connection)
        return served

    def _give(self, connection: socket.socket) -> list[Peer]:
        peer = _peer(connection)
        if peer.uid == os.geteuid():
            connection.setblocking(False)
            with suppress(OSError):  # it has already gone
                socket.send_fds(connection, [self._catalog], self._fds)
                return [peer]
        self.refused += 1
        return []

    def close(self) -> None:
        """Stop listening; who has the segments keeps them."""
        self._listener.close()
        if self._inode >= 0:
            os.close(self._inode)
        self._inode = -1


def receive(address: str, timeout_s: float) -> Received:
    """Fetch the segments from the coordinator at `address`; the worker's side.

    Waits `timeout_s` at most to get in and as long again for the answer. Raises UsageError if no
    coordinator is there, ProtocolError if it is silent, refuses, or sends what we do not expect.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        _limit_waiting(connection, timeout_s)
        try:
            connection.connect(address)
            coordinator = _peer(connection)
            _check_user(coordinator, address)
            encoded, fds, _, _ = socket.recv_fds(connection, MAX_BYTES, MAX_SEGMENTS)
        except BlockingIOError as error:
            raise ProtocolError(
                f"expected an answer from the coordinator at {address} within {timeout_s} s;"
                " got none: is it stopped or overloaded?"
            ) from error
        except OSError as error:
            raise UsageError(
                f"expected a coordinator of this user at {address}; got {error.strerror!r}:"
                " is the run over?"
            ) from error
    return Received(*_attach(encoded, fds), coordinator.pid)


def _limit_waiting(connection: socket.socket, timeout_s: float) -> None:
    # Not settimeout: it makes the socket non-blocking, and then connecting to a full backlog
    # fails at once instead of waiting.
    limit = struct.pack("@ll", int(timeout_s), int(timeout_s % 1 * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def _check_user(coordinator: Peer, address: str) -> None:
    if coordinator.uid != os.geteuid():
        raise ProtocolError(
            f"expected a coordinator of user {os.geteuid()} at {address}; got one of user"
            f" {coordinator.uid}: start the worker as that user"
        )


def _attach(encoded: bytes, fds: list[int]) -> tuple[Catalog, dict[str, Segment]]:
    with ExitStack() as undo:
        for fd in fds:
            undo.callback(os.close, fd)
            os.set_inheritable(fd, False)  # recv_fds drops its flags, MSG_CMSG_CLOEXEC included
        try:
            catalog = msgspec.json.decode(encoded, type=Catalog)
            pairs = tuple(zip(catalog.segments, fds, strict=True))
        except ValueError as error:  # msgspec's errors are ValueErrors too
            raise ProtocolError(
                f"expected a catalog with its descriptors; got {len(encoded)} bytes and"
                f" {len(fds)} descriptors ({error}): run coordinator and worker as the same user"
                " and from the same version of hogbatch"
            ) from error
        segments = {r.name: Segment.attach(fd, r.layout, r.writable) for r, fd in pairs}
        undo.pop_all()
    return catalog, segments


def _listen_unnamed(run_dir: Path) -> tuple[socket.socket, int]:
    """Listen without leaving a name; return the socket and a descriptor of its inode.

    Bound by way of the directory's descriptor, because a socket's path may have 107 bytes only.
    """
    directory = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    with ExitStack() as undo:
        undo.callback(os.close, directory)
        failure = undo.enter_context(ExitStack())
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        failure.callback(listener.close)
        with suppress(FileNotFoundError):  # there if one was killed just before the unlink below
            os.unlink(NAME, dir_fd=directory)
        listener.bind(f"/proc/self/fd/{directory}/{NAME}")
        inode = os.open(NAME, os.O_PATH | os.O_CLOEXEC, dir_fd=directory)
        os.unlink(NAME, dir_fd=directory)
        listener.listen(BACKLOG)
        failure.pop_all()
    return listener, inode


def _peer(connection: socket.socket) -> Peer:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return Peer(pid, uid)
