"""Frames between a server's process and the process that has started it.

A Unix socket of sequenced packets is readable at the end of the other process. A frame is sent as
one or several packets, each of which begins with a byte: 1 if the frame goes on, 0 at its end. The
server's process receives a :class:`ServerStart` and then messages `Servers`; it sends a
:class:`ServerMemory`, and `Failed` if it fails.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Self

MAX_FRAME = 1 << 22  # bytes: more than the addresses of all servers of a run, in one message
PACKET = 1 << 16  # bytes of a frame; a packet must fit into the buffer of the socket
TIMEOUT_S = 30  # of a frame that cannot be sent


class FrameSocket:
    """One end of the connection. One thread receives; any thread sends."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        limit = struct.pack("@ll", TIMEOUT_S, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * PACKET)
        self._sending = threading.Lock()
        self._received: list[bytes] = []  # of a frame that goes on
        self._size = 0  # of these, in bytes
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
        with self._sending:
            for start in range(0, len(frame), PACKET):
                goes_on = start + PACKET < len(frame)
                try:
                    self._connection.send(bytes([goes_on]) + frame[start : start + PACKET])
                except OSError:
                    with suppress(OSError):  # a frame cannot be continued by another one
                        self._connection.shutdown(socket.SHUT_RDWR)
                    raise

    def frames(self) -> Iterator[bytes]:
        """Yield the frames that have arrived, without waiting."""
        with suppress(BlockingIOError):
            while frame := self.wait(socket.MSG_DONTWAIT):
                yield frame

    def wait(self, flags: int = 0) -> bytes:
        """Wait for the next frame; empty at the end of the other process.

        `flags` are those of recv(2): with MSG_DONTWAIT, BlockingIOError if a part has not arrived.
        """
        goes_on = True
        while goes_on:
            try:
                packet = self._connection.recv(1 + PACKET, flags)
            except ConnectionResetError:
                packet = b""
            self._received.append(packet[1:])
            self._size += len(packet)
            if not packet or packet[0] > 1 or self._size > 2 * MAX_FRAME:
                self.ended = True  # or it sends what is not a frame
                return b""
            goes_on = packet[0] == 1
        self._size = 0
        frame = b"".join(self._received)
        self._received.clear()
        return frame

    def close(self) -> None:
        """Close this end."""
        self._connection.close()
