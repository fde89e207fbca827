"""Encoding and decoding of messages; no other module converts messages to bytes.

A frame is "HB", the protocol version as an unsigned 16-bit little-endian number, and the message
in msgpack. The version is outside the schema so that it can be read whatever follows it.
"""

import struct
from typing import TypeVar

import msgspec
from msgspec.msgpack import Decoder, Encoder

from hogbatch.wire.messages import ToCoordinator, ToWorker

T = TypeVar("T")

PROTOCOL = 8
MAGIC = b"HB"
PREFIX = MAGIC + struct.pack("<H", PROTOCOL)
MAX_ERROR_CHARS = 200  # maximum length of the error text about an invalid frame

_encoder = Encoder()
_to_worker: Decoder[ToWorker] = Decoder(ToWorker)
_to_coordinator: Decoder[ToCoordinator] = Decoder(ToCoordinator)


class BadFrame(ValueError):
    """A frame that is not a message of this protocol."""


class OtherVersion(BadFrame):
    """A frame with a different protocol version, `theirs`."""

    def __init__(self, theirs: int) -> None:
        super().__init__(f"protocol version {theirs}; this side uses {PROTOCOL}")
        self.theirs = theirs


def encode(message: ToWorker | ToCoordinator) -> bytes:
    return PREFIX + _encoder.encode(message)


def decode_to_worker(frame: bytes) -> ToWorker:
    """Decode a frame sent by the coordinator; BadFrame if it is invalid."""
    return _decode(_to_worker, frame)


def decode_to_coordinator(frame: bytes) -> ToCoordinator:
    """Decode a frame sent by a worker; BadFrame if it is invalid."""
    return _decode(_to_coordinator, frame)


def _decode(decoder: Decoder[T], frame: bytes) -> T:
    if len(frame) < len(PREFIX) or frame[: len(MAGIC)] != MAGIC:
        raise BadFrame("not a hogbatch frame")
    (version,) = struct.unpack_from("<H", frame, len(MAGIC))
    if version != PROTOCOL:
        raise OtherVersion(version)
    try:
        return decoder.decode(memoryview(frame)[len(PREFIX) :])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        text = ascii(str(error)[:MAX_ERROR_CHARS])[1:-1]  # it may quote bytes of the frame
        raise BadFrame(text) from None
