"""A plane through another process of each server, which maps the same buffers: the fallback.

The process that has started the server, for example an actor of Ray, writes the bytes to the
buffers of the other server, whose process gets the note. It refuses writes of earlier memberships:
this plane cannot see who wrote.
"""

import errno
from collections.abc import Iterator, Mapping

import msgspec
from msgspec.msgpack import encode

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


_reply: msgspec.msgpack.Decoder[Written | Note] = msgspec.msgpack.Decoder(Written | Note)


class RelayedPlane:
    """Asks the process at the other end of `frames` to write, and receives notes from it."""

    address = b""  # relays know each other by number

    def __init__(self, frames: FrameSocket, name: str) -> None:
        self.name = name
        self._frames = frames
        self._others = frozenset[int]()
        self._notes = list[Note]()  # that arrived before the answer to a write

    def connect(self, others: Mapping[int, bytes]) -> None:
        """See `base.Plane`; the relay itself must have refused earlier servers before this call."""
        self._others = frozenset(others)

    def start(self, to: int, source: tuple[int, int], target: int, note: bytes) -> None:
        """See `base.Plane`. Returns when the bytes have arrived."""
        try:
            self._frames.send(encode(RelayedWrite(to, *source, target, note)))
        except OSError as error:
            name = errno.errorcode[error.errno or 0]
            raise PlaneError(to, f"cannot be reached: {name}") from None
        while True:
            reply = _reply.decode(self._frames.wait()) if not self._frames.ended else Written("end")
            if isinstance(reply, Note):
                self._notes.append(reply)
            elif reply.failure is not None:
                raise PlaneError(to, reply.failure)
            else:
                return

    def finish(self) -> None:
        """See `base.Plane`: nothing is left to wait for."""

    def notes(self) -> Iterator[tuple[int, bytes]]:
        replies = [*self._notes, *map(_reply.decode, self._frames.frames())]
        self._notes.clear()
        for reply in replies:
            if isinstance(reply, Note) and reply.sender in self._others:
                yield reply.sender, reply.note

    def close(self) -> None:
        """See `base.Plane`; the relay stays open."""
        self._others = frozenset()
