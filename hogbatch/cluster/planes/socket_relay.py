"""The relay of a server's process: the process that has started it writes to other servers."""

import errno
import queue
from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.frames import FrameSocket
from hogbatch.cluster.planes.base import PlaneError


class RelayedWrite(msgspec.Struct, frozen=True, array_like=True):
    """Bytes [start, stop) of this server's buffers are to be written to offset `target` of `to`."""

    to: int
    start: int
    stop: int
    target: int
    note: bytes


class Written(msgspec.Struct, frozen=True, array_like=True, tag="written"):
    """The bytes were written, or why they were not."""

    failure: str | None = None


class Note(msgspec.Struct, frozen=True, array_like=True, tag="note"):
    """A note has arrived."""

    sender: int
    note: bytes


_encoder = msgspec.msgpack.Encoder()
_write = msgspec.msgpack.Decoder(RelayedWrite)
_reply: msgspec.msgpack.Decoder[Written | Note] = msgspec.msgpack.Decoder(Written | Note)


def encode(message: RelayedWrite | Written | Note) -> bytes:
    """Encode a message of a relay."""
    return _encoder.encode(message)


def decode_write(frame: bytes) -> RelayedWrite:
    """Decode what a server's process asks for."""
    return _write.decode(frame)


class SocketRelay:
    """Asks the process at the other end of `frames`; see `relayed.Relay`."""

    def __init__(self, buffers: ExchangeBuffers, frames: FrameSocket) -> None:
        self._base, self._frames = buffers.memory.ctypes.data, frames
        self._notes: queue.SimpleQueue[Note] = queue.SimpleQueue()

    def write(self, to: int, array: NDArray[np.uint8], target: int, note: bytes) -> None:
        start = array.ctypes.data - self._base if len(array) else 0
        try:
            self._frames.send(encode(RelayedWrite(to, start, start + len(array), target, note)))
        except OSError as error:
            raise PlaneError(
                to, f"cannot be reached: {errno.errorcode[error.errno or 0]}"
            ) from None
        while True:
            reply = _reply.decode(self._frames.wait()) if not self._frames.ended else Written("end")
            if isinstance(reply, Note):
                self._notes.put(reply)
            elif reply.failure is not None:
                raise PlaneError(to, reply.failure)
            else:
                return

    def notes(self) -> Iterator[tuple[int, bytes]]:
        for frame in self._frames.frames():
            reply = _reply.decode(frame)
            if isinstance(reply, Note):
                self._notes.put(reply)
        while not self._notes.empty():
            found = self._notes.get_nowait()
            yield found.sender, found.note
