"""The control plane over ZeroMQ; only this module and :mod:`curve` import zmq.

Unless it listens on tcp, the coordinator's socket has no name on disk: it is bound inside the run
directory, and the name is removed immediately. Workers connect through /proc/<pid>/fd/<n>, which
only the same user may open. No file is left behind, even after SIGKILL.
"""

import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack
from math import ceil
from pathlib import Path

import zmq

from hogbatch.errors import ProtocolError, UsageError
from hogbatch.wire import codec
from hogbatch.wire.address import SOCKET, bind_unnamed
from hogbatch.wire.curve import Authenticator, Keys, set_keys
from hogbatch.wire.messages import Refused, ToCoordinator, ToWorker

log = logging.getLogger(__name__)

MAX_FRAME = 65536  # bytes; libzmq drops the peer that sends a longer one
MAX_UNREAD = 20  # messages of a peer that are buffered; later ones stay with their sender
MAX_AT_ONCE = 1000  # messages of one `receive`, so that a flood cannot block the loop
PAUSE_S = 0.001  # length of the pause in reading after an invalid message
LOG_INTERVAL_S = 60.0


class Router:
    """The coordinator's channel: one ROUTER socket and the watched descriptors.

    After an invalid message it reads nothing for PAUSE_S. Unread messages fill ZeroMQ's queues, and
    then the sender's `send` blocks: a flood costs its sender time and barely slows training. ZeroMQ
    reads its peers in turn, so a valid message waits for a pause or two, not for the whole flood.
    """

    def __init__(self, run_dir: Path, *, listen: str | None = None) -> None:
        """Listen on an unnamed socket in `run_dir`, or over tcp on a port of the IP `listen`.

        Over tcp, peers need `keys` to connect. UsageError if the socket cannot be opened.
        """
        self.refused = 0
        self._next_log = 0.0
        self._paused_until = 0.0
        self._inode = -1
        self._authenticator: Authenticator | None = None
        self._context = zmq.Context()
        with ExitStack() as undo:
            undo.callback(self._context.destroy, linger=0)
            self._socket = self._context.socket(zmq.ROUTER)
            self._socket.setsockopt(zmq.LINGER, 500)
            self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # an unreachable worker is an error
            self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME)
            self._socket.setsockopt(zmq.RCVHWM, MAX_UNREAD)
            if listen is None:
                bind = self._socket.bind
                self._inode = bind_unnamed(lambda path: bind(f"ipc://{path}"), run_dir, SOCKET)
                self.address = f"ipc:///proc/{os.getpid()}/fd/{self._inode}"
            else:
                self._authenticator = Authenticator(self._context, self._socket)
                self.address = _bind_tcp(self._socket, listen)
            undo.pop_all()
        authenticators = self._authenticator.sockets if self._authenticator else ()
        self._watched = _poller(*authenticators)  # polled while reading is paused
        self._all = _poller(self._socket, *authenticators)

    @property
    def keys(self) -> Keys | None:
        """Keys that peers need to connect over tcp; None for a socket of this machine."""
        return self._authenticator.keys if self._authenticator else None

    @property
    def rejected(self) -> int:
        """Number of connections that were closed because they lacked the keys."""
        return self._authenticator.rejected if self._authenticator else 0

    def watch(self, source: "int | Dealer") -> None:
        """Make `wait` return when a descriptor is readable, or when a Dealer has a message."""
        registered = source if isinstance(source, int) else source.socket
        self._watched.register(registered, zmq.POLLIN)
        self._all.register(registered, zmq.POLLIN)

    def unwatch(self, fd: int) -> None:
        self._watched.unregister(fd)
        self._all.unregister(fd)

    def wait(self, timeout_s: float) -> list[int]:
        rest = min(self._paused_until - time.monotonic(), timeout_s)
        ready = self._poll(self._watched, rest) if rest > 0 else []
        return ready or self._poll(self._all, timeout_s - max(0.0, rest))

    def _poll(self, poller: zmq.Poller, timeout_s: float) -> list[int]:
        ready = [source for source, _ in poller.poll(ceil(max(0.0, timeout_s) * 1000))]
        fds = [source for source in ready if isinstance(source, int)]
        if self._authenticator and len(ready) > len(fds):
            self._authenticator.process()
        return fds

    def receive(self) -> Iterator[tuple[str, ToCoordinator]]:
        for _ in range(MAX_AT_ONCE):
            if time.monotonic() < self._paused_until:
                return
            try:
                peer, frame, excess = self._next()
            except zmq.Again:
                return
            try:
                if excess:
                    raise codec.BadFrame(f"{1 + excess} frames instead of 1")
                message = codec.decode_to_coordinator(frame)
            except codec.BadFrame as error:
                self._refuse(peer.hex(), error)
                self._paused_until = time.monotonic() + PAUSE_S
            else:
                yield peer.hex(), message

    def _next(self) -> tuple[bytes, bytes, int]:
        """Return a peer's identity, its first frame, and the number of extra frames."""
        peer = self._socket.recv(zmq.NOBLOCK)
        frame, excess = self._socket.recv(), 0
        while self._socket.getsockopt(zmq.RCVMORE):
            self._socket.recv(copy=False)
            excess += 1
        return peer, frame, excess

    def _refuse(self, worker: str, error: codec.BadFrame) -> None:
        """Count an invalid frame; log at most one a minute, so a flood cannot fill the disk."""
        self.refused += 1
        if isinstance(error, codec.OtherVersion):
            reason = f"the coordinator uses protocol {codec.PROTOCOL}, this worker {error.theirs}"
            self.send(worker, Refused(f"{reason}: install the same hogbatch on both sides"))
        if time.monotonic() >= self._next_log:
            self._next_log = time.monotonic() + LOG_INTERVAL_S
            log.warning("rejected an invalid message (%d so far): %s", self.refused, error)

    def send(self, worker: str, message: ToWorker) -> bool:
        try:
            self._socket.send_multipart([bytes.fromhex(worker), codec.encode(message)], zmq.NOBLOCK)
        except zmq.ZMQError:  # disconnected (EHOSTUNREACH), or 1000 unread messages (EAGAIN)
            return False
        return True

    def close(self) -> None:
        if self._inode >= 0:
            os.close(self._inode)
        self._inode = -1
        self._context.destroy(linger=500)


def _bind_tcp(socket: "zmq.Socket[bytes]", host: str) -> str:
    """Bind the socket to any port of `host`; return the endpoint for its peers."""
    six = ":" in host
    socket.setsockopt(zmq.IPV6, six)
    try:
        socket.bind(f"tcp://[{host}]:*" if six else f"tcp://{host}:*")
    except zmq.ZMQError as error:
        reason = os.strerror(error.errno or 0)
        raise UsageError(f"cannot listen for servers on {host}: {reason}") from None
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def _poller(*sockets: "zmq.Socket[bytes]") -> zmq.Poller:
    """A poller for messages on `sockets`."""
    poller = zmq.Poller()
    for socket in sockets:
        poller.register(socket, zmq.POLLIN)
    return poller


def new_identity() -> bytes:
    """The identity of a peer that has not existed before; its hex digits are the Router's key."""
    return b"W" + secrets.token_bytes(15)


class Dealer:
    """A worker's channel, used by one thread.

    Each has an identity of its own, so a restarted worker is a new peer.
    """

    def __init__(self, address: str, keys: Keys | None = None, identity: bytes = b"") -> None:
        """Connect to `address`, over tcp with the run's `keys`; by default with a new identity."""
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 500)
        self.socket.setsockopt(zmq.IDENTITY, identity or new_identity())
        self.socket.setsockopt(zmq.IPV6, "[" in address)
        if keys:
            set_keys(self.socket, keys)
        self.socket.connect(address)
        self._poller = _poller(self.socket)

    def watch(self, fd: int) -> None:
        """Make `wait` return when `fd` becomes readable."""
        self._poller.register(fd, zmq.POLLIN)

    def wait(self, timeout_s: float) -> list[int]:
        """Wait for a message or a watched descriptor; return those that are readable."""
        ready = self._poller.poll(max(0, round(timeout_s * 1000)))
        return [source for source, _ in ready if isinstance(source, int)]

    def receive(self) -> ToWorker | None:
        """The next message; None if none has arrived, ProtocolError if it is invalid."""
        try:
            frames = self.socket.recv_multipart(zmq.NOBLOCK)
            return codec.decode_to_worker(b"".join(frames))
        except zmq.Again:
            return None
        except codec.OtherVersion as error:
            raise ProtocolError(
                f"the coordinator uses protocol {error.theirs}, this worker {codec.PROTOCOL}: "
                "install the same hogbatch on both sides"
            ) from None
        except codec.BadFrame as error:
            raise ProtocolError(f"the coordinator sent an invalid message: {error}") from None

    def send(self, message: ToCoordinator) -> None:
        """Send `message` without waiting; ProtocolError if the coordinator does not accept it."""
        try:
            self.socket.send(codec.encode(message), zmq.NOBLOCK)
        except zmq.Again:  # rejected because of its keys, or 1000 messages are unread
            raise ProtocolError(
                "the coordinator does not accept messages of this worker: either its keys are not"
                " those of the run, or the coordinator has stopped reading"
            ) from None

    def close(self) -> None:
        """Close the connection; wait up to half a second for pending messages to be sent."""
        self._context.destroy(linger=500)
