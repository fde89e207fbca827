"""The control plane over ZeroMQ; only this file and :mod:`curve` import it.

Unless it is to listen on tcp, the coordinator's socket has no name on disk. It is bound inside the
run directory, an O_PATH descriptor of the socket is kept, and the name is removed at once; workers
connect through /proc/<pid>/fd/<n>, which only the same user may open. So nothing is left behind,
not even when every process is killed with SIGKILL.
"""

import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from math import ceil
from pathlib import Path

import zmq

from hogbatch.errors import ProtocolError, UsageError
from hogbatch.wire.address import SOCKET, Keys
from hogbatch.wire.codec import (
    PROTOCOL,
    BadFrame,
    OtherVersion,
    decode_to_coordinator,
    decode_to_worker,
    encode,
)
from hogbatch.wire.curve import Authenticator, show_keys
from hogbatch.wire.listen import Endpoint, check_listen
from hogbatch.wire.messages import Refused, ToCoordinator, ToWorker
from hogbatch.wire.throttle import GARBAGE, HONEST, Throttle

log = logging.getLogger(__name__)

MAX_FRAME = 65536  # bytes; libzmq drops the peer that sends a longer one
MAX_UNREAD = 20  # messages of a peer that wait in memory; the next ones stay with their sender
MAX_AT_ONCE = 1000  # messages of one `receive`, so that a flood cannot stop the clock
COMPLAIN_EVERY_S = 60.0


class Router:
    """The coordinator's end: one ROUTER socket, and whatever else has to be waited for."""

    def __init__(self, run_dir: Path, *, listen: str | None = None, insecure: bool = False) -> None:
        """Listen, without a name in `run_dir`, or over tcp on the endpoint `listen`.

        Over tcp only workers with `keys` are let in, or with `insecure` everyone. UsageError if
        that cannot be.
        """
        endpoint = check_listen(listen, insecure)
        self.refused = 0
        self._silent_until = 0.0
        self._throttle = Throttle(time.monotonic())
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
            if endpoint is None:
                self._inode = _bind_unnamed(self._socket, run_dir)
                self.address = f"ipc:///proc/{os.getpid()}/fd/{self._inode}"
            else:
                self._authenticator = (
                    None if insecure else Authenticator(self._context, self._socket, endpoint)
                )
                self.address = _bind_tcp(self._socket, endpoint)
            undo.pop_all()
        authenticators = self._authenticator.sockets if self._authenticator else ()
        self._others = _poller(*authenticators)  # what is waited for while the throttle rests
        self._all = _poller(self._socket, *authenticators)

    @property
    def keys(self) -> Keys | None:
        """What workers must have to be let in, besides `address`."""
        return self._authenticator.keys if self._authenticator else None

    @property
    def turned_away(self) -> int:
        """Connections that were closed because they came without the keys."""
        return self._authenticator.turned_away if self._authenticator else 0

    def watch(self, fd: int) -> None:
        self._others.register(fd, zmq.POLLIN)
        self._all.register(fd, zmq.POLLIN)

    def unwatch(self, fd: int) -> None:
        self._others.unregister(fd)
        self._all.unregister(fd)

    def wait(self, timeout_s: float) -> list[int]:
        rest = min(self._throttle.rest(time.monotonic()), timeout_s)
        ready = self._poll(self._others, rest) if rest > 0 else []
        return ready or self._poll(self._all, timeout_s - rest)

    def _poll(self, poller: zmq.Poller, timeout_s: float) -> list[int]:
        ready = [source for source, _ in poller.poll(ceil(max(0.0, timeout_s) * 1000))]
        fds = [source for source in ready if isinstance(source, int)]
        if self._authenticator and len(ready) > len(fds):
            self._authenticator.attend()
        return fds

    def receive(self) -> Iterator[tuple[str, ToCoordinator]]:
        for _ in range(MAX_AT_ONCE):
            if self._throttle.rest(time.monotonic()):
                return
            try:
                peer, frame, excess = self._next()
            except zmq.Again:
                return
            message = self._read(peer, frame, excess)
            price = GARBAGE + excess if message is None else HONEST
            self._throttle.charge(price, time.monotonic())
            if message is not None:
                yield peer.hex(), message

    def _next(self) -> tuple[bytes, bytes, int]:
        """A peer's identity, the first frame that it has sent, and how many came with that one."""
        peer = self._socket.recv(zmq.NOBLOCK)
        frame, excess = self._socket.recv(), 0
        while self._socket.getsockopt(zmq.RCVMORE):
            self._socket.recv(copy=False)
            excess += 1
        return peer, frame, excess

    def _read(self, peer: bytes, frame: bytes, excess: int) -> ToCoordinator | None:
        """The message in `frame`, None if it is none or the peer has had its strikes."""
        try:
            if self._throttle.out(peer):
                self.refused += 1
                return None
            if excess:
                raise BadFrame(f"{1 + excess} frames instead of 1")
            return decode_to_coordinator(frame)
        except BadFrame as error:
            self._throttle.strike(peer)
            self._refuse(peer.hex(), error)
            return None

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
        if self._inode >= 0:
            os.close(self._inode)
        self._inode = -1
        self._context.destroy(linger=500)


def _bind_unnamed(socket: "zmq.Socket[bytes]", run_dir: Path) -> int:
    """Bind in `run_dir`, unlink the name, return a descriptor of the socket's inode.

    The path goes by way of the directory's descriptor: a socket's path may have 107 bytes only.
    """
    name = SOCKET
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


def _bind_tcp(socket: "zmq.Socket[bytes]", endpoint: Endpoint) -> str:
    """Bind; return where workers of this machine connect."""
    socket.setsockopt(zmq.IPV6, endpoint.host.version == 6)
    try:
        socket.bind(str(endpoint))
    except zmq.ZMQError as error:
        raise UsageError(
            f"--listen {endpoint}: {os.strerror(error.errno or 0)}; choose another address of this"
            " machine, or port 0 for any that is free"
        ) from None
    bound = socket.getsockopt_string(zmq.LAST_ENDPOINT)
    return str(endpoint.reached(int(bound.rpartition(":")[2])))


def _poller(*sockets: "zmq.Socket[bytes]") -> zmq.Poller:
    """What waits for messages on `sockets`."""
    poller = zmq.Poller()
    for socket in sockets:
        poller.register(socket, zmq.POLLIN)
    return poller


class Dealer:
    """A worker's end. Every instance has a fresh identity, so a restarted worker is a new one."""

    def __init__(self, address: str, keys: Keys | None = None) -> None:
        """Connect to the coordinator at `address`, with the keys of its run if it has some."""
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 500)
        self._socket.setsockopt(zmq.IDENTITY, b"W" + secrets.token_bytes(15))
        self._socket.setsockopt(zmq.IPV6, "[" in address)
        if keys:
            show_keys(self._socket, keys)
        self._socket.connect(address)
        self._poller = _poller(self._socket)

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
        except OtherVersion as error:
            raise ProtocolError(
                f"the coordinator speaks protocol {error.theirs}, this worker {PROTOCOL}: install"
                " the same hogbatch on both sides"
            ) from None
        except BadFrame as error:
            raise ProtocolError(
                f"the coordinator sent what this worker cannot read: {error}"
            ) from None

    def send(self, message: ToCoordinator) -> None:
        try:
            self._socket.send(encode(message), zmq.NOBLOCK)
        except zmq.Again:  # refused because of its keys, or a thousand messages lie unread
            raise ProtocolError(
                "the coordinator takes no message of this worker: either it has other keys than"
                " coordinator.json, or it has stopped reading"
            ) from None

    def close(self) -> None:
        self._context.destroy(linger=500)
