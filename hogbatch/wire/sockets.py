"""The control plane over ZeroMQ; the only place that imports it.

The coordinator's socket has no name on disk. It is bound inside the run directory, an O_PATH
descriptor of the socket is kept, and the name is removed at once; workers connect through
/proc/<pid>/fd/<n>, which only the same user may open. So nothing is left behind, not even when
every process is killed with SIGKILL.
"""

import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import zmq

from hogbatch.errors import ProtocolError
from hogbatch.wire.codec import (
    PROTOCOL,
    BadFrame,
    OtherVersion,
    decode_to_coordinator,
    decode_to_worker,
    encode,
)
from hogbatch.wire.messages import Refused, ToCoordinator, ToWorker

log = logging.getLogger(__name__)

MAX_FRAME = 65536  # bytes; libzmq drops the peer that sends a longer one
MOST_AT_ONCE = 1000  # messages of one `receive`, so that a flood cannot stop the clock
COMPLAIN_EVERY_S = 60.0


class Router:
    """The coordinator's end: one ROUTER socket, and whatever else has to be waited for."""

    def __init__(self, run_dir: Path) -> None:
        self.refused = 0
        self._silent_until = 0.0
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 500)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an unreachable worker is an error
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME)
        self._inode = _bind_unnamed(self._socket, run_dir)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)

    @property
    def address(self) -> str:
        """Where workers of this user on this server connect."""
        return f"ipc:///proc/{os.getpid()}/fd/{self._inode}"

    def watch(self, fd: int) -> None:
        self._poller.register(fd, zmq.POLLIN)

    def unwatch(self, fd: int) -> None:
        self._poller.unregister(fd)

    def wait(self, timeout_s: float) -> list[int]:
        ready = self._poller.poll(max(0, round(timeout_s * 1000)))
        return [source for source, _ in ready if isinstance(source, int)]

    def receive(self) -> Iterator[tuple[str, ToCoordinator]]:
        for _ in range(MOST_AT_ONCE):
            try:
                identity, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                if len(frames) != 1:
                    raise BadFrame(f"{len(frames)} frames instead of 1")
                message = decode_to_coordinator(frames[0])
            except BadFrame as error:
                self._refuse(identity.hex(), error)
            else:
                yield identity.hex(), message

    def _refuse(self, worker: str, error: BadFrame) -> None:
        """Count a bad frame; log at most one a minute, so that a flood cannot fill the disk."""
        self.refused += 1
        if isinstance(error, OtherVersion):
            reason = f"the coordinator speaks protocol {PROTOCOL}, this worker {error.theirs}"
            self.send(worker, Refused(f"{reason}: install the same hogbatch on both sides"))
        if time.monotonic() >= self._silent_until:
            self._silent_until = time.monotonic() + COMPLAIN_EVERY_S
            log.warning("refused a message (%d so far): %s", self.refused, error)

    def send(self, worker: str, message: ToWorker) -> bool:
        try:
            self._socket.send_multipart([bytes.fromhex(worker), encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError:  # gone (EHOSTUNREACH), or it has not read a thousand messages (EAGAIN)
            return False
        return True

    def close(self) -> None:
        os.close(self._inode)
        self._context.destroy(linger=500)


def _bind_unnamed(socket: "zmq.Socket[bytes]", run_dir: Path) -> int:
    """Bind in `run_dir`, unlink the name, return a descriptor of the socket's inode.

    The path goes by way of the directory's descriptor: a socket's path may have 107 bytes only.
    """
    name = "control.socket"
    directory = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def remove() -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)

    with ExitStack() as undo:
        undo.callback(os.close, directory)
        remove()  # one is there if a coordinator was killed between the two lines below
        undo.callback(remove)  # also when Ctrl-C comes while binding
        socket.bind(f"ipc:///proc/self/fd/{directory}/{name}")
        return os.open(name, os.O_PATH | os.O_CLOEXEC, dir_fd=directory)


class Dealer:
    """A worker's end. Every instance has a fresh identity, so a restarted worker is a new one."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 500)
        self._socket.setsockopt(zmq.IDENTITY, b"W" + secrets.token_bytes(15))
        self._socket.connect(address)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)

    def watch(self, fd: int) -> None:
        self._poller.register(fd, zmq.POLLIN)

    def wait(self, timeout_s: float) -> list[int]:
        ready = self._poller.poll(max(0, round(timeout_s * 1000)))
        return [source for source, _ in ready if isinstance(source, int)]

    def receive(self) -> ToWorker | None:
        try:
            frames = self._socket.recv_multipart(zmq.NOBLOCK)
            return decode_to_worker(b"".join(frames))
        except zmq.Again:
            return None
        except BadFrame as error:
            raise ProtocolError(
                f"the coordinator sent what this worker cannot read: {error}"
            ) from None

    def send(self, message: ToCoordinator) -> None:
        self._socket.send(encode(message))

    def close(self) -> None:
        self._context.destroy(linger=500)
