"""Messages between the process that trains and the process that calls Ray.

They contain text, numbers, bytes, and arrays in shared memory, whose descriptor is sent along.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from hogbatch import errors
from hogbatch.cluster.frames import FrameSocket
from hogbatch.errors import HogbatchError
from hogbatch.store.layout import Layout, arrange
from hogbatch.store.segment import Segment

RESULT: Final = "result"
ERROR: Final = "error"
FAILED: Final = "failed"
ALONE: Final = ""  # the name of an array that is a result by itself


class Message(msgspec.Struct, frozen=True):
    """A call of a method, its RESULT or ERROR, or the report that a server has FAILED or ended."""

    method: str
    arguments: tuple[Any, ...] = ()
    server: str = ""  # the key of the server whose method it is; "": it is one of the cluster
    number: int = 0  # of the call; 0: it has no answer
    layout: Layout | None = None  # of the shared memory that comes with the message


def send(frames: FrameSocket, message: Message, segment: Segment | None = None) -> None:
    """Send a message, with shared memory if any; OSError if the other process has ended."""
    if segment is None:
        frames.send(msgspec.msgpack.encode(message))
    else:
        message = structs.replace(message, layout=segment.layout)
        frames.send(msgspec.msgpack.encode(message), [segment.fd])


def receive(frames: FrameSocket) -> tuple[Message, Segment | None] | None:
    """Wait for the next message; None at the end of the other process."""
    if not (frame := frames.wait()):
        return None
    message = msgspec.msgpack.decode(frame, type=Message)
    if message.layout is None:
        return message, None
    (descriptor,) = frames.descriptors
    return message, Segment.attach(descriptor, message.layout, writable=False)


def packed(arrays: Mapping[str, NDArray[Any] | bytes]) -> Segment:
    """Copy arrays and bytes to shared memory."""
    found = {
        name: np.frombuffer(each, np.uint8) if isinstance(each, bytes) else each
        for name, each in arrays.items()
    }
    layout = arrange({name: (each.dtype.str, each.shape) for name, each in found.items()})
    segment = Segment.create("arrays", layout)
    for name, each in found.items():
        segment.array(name)[:] = each
    return segment


def unpacked(segment: Segment) -> dict[str, NDArray[Any]]:
    """The arrays of a received segment, whose memory is freed with the last of them."""
    arrays = {field.name: segment.array(field.name) for field in segment.layout.fields}
    segment.close()
    return arrays


def described(error: Exception) -> tuple[str, str]:
    """The kind and the text of an error, for `restored`."""
    kind = type(error).__name__
    if isinstance(error, HogbatchError | OSError):
        return kind, str(error)
    return HogbatchError.__name__, f"a call of Ray has failed: {kind}: {error}"


def restored(kind: str, text: str) -> Exception:
    """The error of the other process: one of `hogbatch.errors`, or else an OSError."""
    return getattr(errors, kind, OSError)(text)


def answer(frames: FrameSocket, target: object, message: Message, segment: Segment | None) -> None:
    """Call the method of `target`, and send its result unless the call has no answer.

    It gets the shared memory as its last argument. A result that is an array, or a mapping of
    arrays or bytes, is copied to shared memory.
    """
    arguments = [*message.arguments, *([segment] if segment else [])]
    arrays = None
    try:
        result = getattr(target, message.method)(*arguments)
        if isinstance(result, Mapping | np.ndarray):
            arrays = packed(result if isinstance(result, Mapping) else {ALONE: result})
        sent = Message(RESULT, () if arrays else (result,), number=message.number)
    except Exception as error:
        sent = Message(ERROR, described(error), number=message.number)
    if message.number:
        send(frames, sent, arrays)
    if arrays:
        arrays.close()
