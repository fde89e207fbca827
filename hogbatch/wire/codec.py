"""Messages to bytes and back; the only place that makes bytes of messages.

A frame is "HB", the protocol version as an unsigned 16-bit little-endian number, and the message
in msgpack. The version stands outside the schema so that it can be read whatever follows it.
"""

import struct
from typing import TypeVar

import msgspec

from hogbatch.wire.messages import ToCoordinator, ToWorker, decode_layer

T = TypeVar("T")

PROTOCOL = 2
MAGIC = b"HB"
PREFIX = MAGIC + struct.pack("<H", PROTOCOL)
MAX_SAID = 200  # characters about a frame that is no message

_encoder = msgspec.msgpack.Encoder()
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(
    ToWorker, dec_hook=decode_layer
)
_to_coordinator: msgspec.msgpack.Decoder[ToCoordinator] = msgspec.msgpack.Decoder(ToCoordinator)


class BadFrame(ValueError):
    """Not a message of this protocol."""


class OtherVersion(BadFrame):
    """A frame of another protocol version, `theirs`."""

    def __init__(self, theirs: int) -> None:
        super().__init__(f"protocol version {theirs}; this side speaks {PROTOCOL}")
        self.theirs = theirs


def encode(message: ToWorker | ToCoordinator) -> bytes:
    """Return the frame of `message`."""
    return PREFIX + _encoder.encode(message)


def decode_to_worker(frame: bytes) -> ToWorker:
    """Read a frame that the coordinator sent; BadFrame if it is none."""
    return _decode(_to_worker, frame)


def decode_to_coordinator(frame: bytes) -> ToCoordinator:
    """Read a frame that a worker sent; BadFrame if it is none."""
    return _decode(_to_coordinator, frame)


def _decode(decoder: msgspec.msgpack.Decoder[T], frame: bytes) -> T:
    if len(frame) < len(PREFIX) or frame[: len(MAGIC)] != MAGIC:
        raise BadFrame("no hogbatch frame")
    (version,) = struct.unpack_from("<H", frame, len(MAGIC))
    if version != PROTOCOL:
        raise OtherVersion(version)
    try:
        return decoder.decode(memoryview(frame)[len(PREFIX) :])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise BadFrame(ascii(str(error)[:MAX_SAID])[1:-1]) from None  # it may quote the frame
