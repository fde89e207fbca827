"""Frames between a server's process and the process that has started it.

A Unix socket of sequenced packets keeps the limits of frames and is readable at the end of the
other process. The server's process receives a :class:`ServerStart` and then messages `Servers`; it
sends a :class:`ServerMemory`, and `Failed` if it fails.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Self

MAX_FRAME = 1 << 17  # bytes; a packet must fit into the buffer of the socket
TIMEOUT_S = 30  # of a frame that cannot be sent


class FrameSocket:
    """One end of the connection. One thread receives; any thread sends."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        limit = struct.pack("@ll", TIMEOUT_S, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_FRAME)
        self.ended = False  # the other process has closed its end

    @classmethod
    def pair(cls) -> tuple[Self, socket.socket]:
        """This process's end, and the one to be inherited by a new process."""
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(own), other

    @classmethod
    def inherited(cls, fd: int) -> Self:
        """The end that this process has inherited as `fd`."""
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """Readable when a frame has arrived, or when the other process has ended."""
        return self._connection.fileno()

    def send(self, frame: bytes) -> None:
        """Send one frame; OSError if the other process has ended or does not read."""
        if len(frame) > MAX_FRAME:
            raise ValueError(f"expected a frame of at most {MAX_FRAME} bytes; got {len(frame)}")
        self._connection.send(frame)

    def wait(self) -> bytes:
        """Wait for the next frame; empty at the end of the other process."""
        return self._receive()

    def frames(self) -> Iterator[bytes]:
        """Yield the frames that have arrived, without waiting."""
        with suppress(BlockingIOError):
            while frame := self._receive(socket.MSG_DONTWAIT):
                yield frame

    def _receive(self, flags: int = 0) -> bytes:
        try:
            frame = self._connection.recv(MAX_FRAME, flags)
        except ConnectionResetError:
            frame = b""
        self.ended = self.ended or not frame
        return frame

    def close(self) -> None:
        """Close this end."""
        self._connection.close()
