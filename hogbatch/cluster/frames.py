"""Frames between a server's process and the process that has started it.

A frame is sent over a Unix socket, after its length. The server's process receives a
:class:`ServerStart` and then messages `Servers`; it sends a :class:`ServerMemory`, and `Failed` if
it fails.
"""

import select
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, Self

MAX_FRAME: Final = 1 << 22  # bytes: more than the addresses of all servers, in one message
TIMEOUT_S: Final = 30  # of a frame that cannot be sent
LENGTH: Final = struct.Struct("@I")
CLOSED_BY_EXEC: Final = socket.MSG_CMSG_CLOEXEC


class FrameSocket:
    """One end of the connection. One thread receives; any thread sends."""

    def __init__(self, fd: int) -> None:
        """Use the socket `fd`, which this process has inherited or takes from a pair."""
        connection = self._connection = socket.socket(fileno=fd)
        limit = struct.pack("@ll", TIMEOUT_S, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._arrived = select.poll()
        self._arrived.register(connection, select.POLLIN)
        self._sending = threading.Lock()
        self.ended = False  # the other process has closed its end
        self.descriptors: list[int] = []  # that came with the last frame; open

    @classmethod
    def pair(cls) -> tuple[Self, socket.socket]:
        """This process's end, and the one to be inherited by a new process."""
        own, other = socket.socketpair()
        return cls(own.detach()), other

    def fileno(self) -> int:
        """Readable when a frame has arrived, or when the other process has ended."""
        return self._connection.fileno()

    def send(self, frame: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send one frame, with descriptors of files that the other process may use from then on.

        OSError if the other process has ended or does not read.
        """
        if len(frame) > MAX_FRAME:
            raise ValueError(f"expected a frame of at most {MAX_FRAME} bytes; got {len(frame)}")
        with self._sending:
            try:
                sized = LENGTH.pack(len(frame)) + frame
                sent = socket.send_fds(self._connection, [sized], descriptors)
                if rest := sized[sent:]:  # to send no bytes fails if the other process has ended
                    self._connection.sendall(rest)
            except OSError:
                with suppress(OSError):  # a frame cannot be continued by another one
                    self._connection.shutdown(socket.SHUT_RDWR)
                raise

    def frames(self) -> Iterator[bytes]:
        """Yield the frames that have arrived, without waiting for others."""
        while not self.ended and self._arrived.poll(0):
            if frame := self.wait():
                yield frame

    def wait(self) -> bytes:
        """Wait for the next frame; empty at the end of the other process."""
        with suppress(ConnectionResetError):
            self.descriptors = []
            header = self._receive(LENGTH.size)
            length = LENGTH.unpack(header)[0] if header else 0
            if 0 < length <= MAX_FRAME and (frame := self._receive(length)):
                return frame
        self.ended = True  # or it sends what is not a frame
        return b""

    def _receive(self, size: int) -> bytes:
        """The next `size` bytes; empty if the other process ends before."""
        received = b""
        while len(received) < size:
            rest = size - len(received)
            part, descriptors, *_ = socket.recv_fds(self._connection, rest, 1, CLOSED_BY_EXEC)
            if not part:
                return b""
            self.descriptors += descriptors
            received += part
        return received

    def close(self) -> None:
        self._connection.close()
