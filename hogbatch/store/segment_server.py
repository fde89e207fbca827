"""Sends the shared memory segments to workers: one message with their layouts and descriptors.

The coordinator listens on a Unix socket that has no name on disk: it is bound in the run directory,
held by a descriptor and unlinked immediately. Workers connect through /proc/<coordinator>/fd/<n>,
which the kernel opens only for the same user; the credentials of both sides are also checked.
However the coordinator ends, nothing has to be cleaned up.

How a worker finds the address is not part of this module (see :mod:`hogbatch.wire.address`).
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
from hogbatch.wire.address import bind_unnamed, make_private

BACKLOG = 128  # maximum number of pending connections, and of connections per `serve`
MAX_MANIFEST_BYTES = 1 << 16  # one packet, well below the kernel's default send buffer
MAX_SEGMENTS = 16
NAME = "segment_server.socket"  # file name of the socket while it is being bound


class SegmentDescription(msgspec.Struct, frozen=True):
    """The information a worker needs to attach one segment."""

    name: str
    layout: Layout
    writable: bool


class SegmentManifest(msgspec.Struct, frozen=True):
    """The message sent with the descriptors, which are in the order of `segments`."""

    run: str
    fingerprint: str  # of the dataset
    features: int  # F
    segments: tuple[SegmentDescription, ...]


class FetchedSegments(NamedTuple):
    """The attached segments of a run, and the process that sent them."""

    manifest: SegmentManifest
    segments: dict[str, Segment]
    coordinator_pid: int


@dataclass(frozen=True, slots=True)
class PeerCredentials:
    """The process at the other end of a connection, as reported by the kernel."""

    pid: int
    uid: int


def describe_segments(segments: Mapping[str, Segment]) -> tuple[SegmentDescription, ...]:
    """Describe segments for a manifest; read-only segments cannot be written by workers."""
    return tuple(
        SegmentDescription(name, segment.layout, writable=not segment.read_only)
        for name, segment in segments.items()
    )


class SegmentServer:
    """The coordinator's side. Poll :meth:`fileno`; when it is readable, call :meth:`serve`."""

    def __init__(
        self, listener: socket.socket, inode: int, manifest: bytes, fds: list[int]
    ) -> None:
        """Use :meth:`open`; `inode` is a descriptor of the listener's inode."""
        self.address = f"/proc/{os.getpid()}/fd/{inode}"
        self.refused = 0  # connections of other users, or closed before they were served
        self._listener = listener
        self._inode = inode
        self._manifest = manifest
        self._fds = fds

    @classmethod
    def open(
        cls, run_dir: Path, manifest: SegmentManifest, segments: Mapping[str, Segment]
    ) -> Self:
        """Listen in `run_dir`, which is created with mode 0700 if it is missing.

        The caller keeps ownership of the segments. Raises UsageError if other users may enter the
        directory, or if it cannot contain a socket.
        """
        encoded = msgspec.json.encode(manifest)
        if len(encoded) > MAX_MANIFEST_BYTES:
            raise ValueError(
                f"expected a manifest of at most {MAX_MANIFEST_BYTES} bytes; got {len(encoded)}"
            )
        fds = [segments[record.name].fd for record in manifest.segments]
        try:
            make_private(run_dir)
            listener, inode = _listen_unnamed(run_dir)
        except OSError as error:
            raise UsageError(
                f"expected a run directory that can contain a Unix socket; got {error.strerror!r}"
                f" for {run_dir}: choose another directory on a local disk"
            ) from error
        return cls(listener, inode, encoded, fds)

    def fileno(self) -> int:
        """A descriptor that is readable while workers wait to be served."""
        return self._listener.fileno()

    def serve(self) -> list[PeerCredentials]:
        """Serve all waiting workers; return those that received the segments.

        Never blocks and never raises. Nothing is read from a connection, and one packet always fits
        into the empty buffer of a new one, so no client can delay the coordinator.
        """
        served: list[PeerCredentials] = []
        for _ in range(BACKLOG):
            try:
                connection, _ = self._listener.accept()
            except OSError:  # none is waiting, or no descriptor is free: the next poll retries
                break
            with connection:
                served += self._send_to(connection)
        return served

    def _send_to(self, connection: socket.socket) -> list[PeerCredentials]:
        peer = _peer(connection)
        if peer.uid == os.geteuid():
            connection.setblocking(False)
            with suppress(OSError):  # already disconnected
                socket.send_fds(connection, [self._manifest], self._fds)
                return [peer]
        self.refused += 1
        return []

    def close(self) -> None:
        """Stop listening; workers that have the segments keep them."""
        self._listener.close()
        if self._inode >= 0:
            os.close(self._inode)
        self._inode = -1


def fetch_segments(address: str, timeout_s: float) -> FetchedSegments:
    """Fetch the segments from the coordinator at `address`; called by workers.

    Waits at most `timeout_s` to connect, and again as long for the answer. Raises UsageError if no
    coordinator is running there, ProtocolError if it does not answer, refuses, or sends an invalid
    message.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        _set_timeouts(connection, timeout_s)
        try:
            connection.connect(address)
            coordinator = _peer(connection)
            _check_user(coordinator, address)
            encoded, fds, _, _ = socket.recv_fds(connection, MAX_MANIFEST_BYTES, MAX_SEGMENTS)
        except BlockingIOError as error:
            raise ProtocolError(
                f"expected an answer from the coordinator at {address} within {timeout_s} s;"
                " got none: is it stopped or overloaded?"
            ) from error
        except OSError as error:
            raise UsageError(
                f"expected a coordinator of this user at {address}; got {error.strerror!r}:"
                " has the run finished?"
            ) from error
    return FetchedSegments(*_attach(encoded, fds), coordinator.pid)


def _set_timeouts(connection: socket.socket, timeout_s: float) -> None:
    # Not settimeout: it makes the socket non-blocking, and then connecting to a full backlog
    # fails immediately instead of waiting.
    limit = struct.pack("@ll", int(timeout_s), int(timeout_s % 1 * 1e6))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)


def _check_user(coordinator: PeerCredentials, address: str) -> None:
    if coordinator.uid != os.geteuid():
        raise ProtocolError(
            f"expected a coordinator of user {os.geteuid()} at {address}; got one of user"
            f" {coordinator.uid}: start the worker as that user"
        )


def _attach(encoded: bytes, fds: list[int]) -> tuple[SegmentManifest, dict[str, Segment]]:
    with ExitStack() as undo:
        for fd in fds:
            undo.callback(os.close, fd)
            os.set_inheritable(fd, False)  # recv_fds ignores MSG_CMSG_CLOEXEC
        try:
            manifest = msgspec.json.decode(encoded, type=SegmentManifest)
            pairs = tuple(zip(manifest.segments, fds, strict=True))
        except ValueError as error:  # includes msgspec's errors
            raise ProtocolError(
                f"expected a manifest with its descriptors; got {len(encoded)} bytes and"
                f" {len(fds)} descriptors ({error}): run coordinator and worker as the same user"
                " and from the same version of hogbatch"
            ) from error
        segments = {r.name: Segment.attach(fd, r.layout, r.writable) for r, fd in pairs}
        undo.pop_all()
    return manifest, segments


def _listen_unnamed(run_dir: Path) -> tuple[socket.socket, int]:
    """Listen without leaving a name; return the socket and a descriptor of its inode."""
    with ExitStack() as failure:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        failure.callback(listener.close)
        inode = bind_unnamed(listener.bind, run_dir, NAME)
        listener.listen(BACKLOG)
        failure.pop_all()
    return listener, inode


def _peer(connection: socket.socket) -> PeerCredentials:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", raw)
    return PeerCredentials(pid, uid)
