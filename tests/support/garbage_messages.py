"""Messages that no worker sends, by name, and a sender that floods a coordinator with them."""

import struct
from random import Random
from typing import Self

import msgspec
import zmq

from hogbatch.wire.codec import MAGIC, PREFIX, PROTOCOL, encode
from hogbatch.wire.messages import Done, Heartbeat, Hello, Stop

HELLO = Hello("cpu", "cpu", 1, 1, "0.1.0", "abc")
DONE = Done(1, 64, 1, 0.1, 2.5, 0, (1.0, 0.5))
FRESH_IDENTITY_EVERY = 1000  # messages; then one is too large, which ends the connection


def raw(*fields: object) -> bytes:
    """A frame of this protocol with any fields."""
    return PREFIX + msgspec.msgpack.encode(fields)


def done(**changes: object) -> bytes:
    """A Done with some fields changed to values that no worker sends."""
    return raw("done", *(changes.get(n, getattr(DONE, n)) for n in Done.__struct_fields__))


MESSAGES = {  # each a list of frames; many of them would crash a naive coordinator
    "nothing": [b""],
    "a magic number alone": [MAGIC],
    "a prefix alone": [PREFIX],
    "another protocol": [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"],
    "a pickle": [b"\x80\x04\x95\x1b\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system"],
    "an older version": [MAGIC + struct.pack("<H", PROTOCOL - 1) + encode(HELLO)[4:]],
    "a newer version": [MAGIC + struct.pack("<H", PROTOCOL + 1)],
    "a kind that does not exist": [raw("dance")],
    "a kind that is a number": [raw(7, 1)],
    "a kind that cannot be hashed": [raw(["done"], 1)],
    "a kind with control characters": [raw("\x1b[2J\nroot: all is well")],
    "an order to a worker": [encode(Stop())],
    "a message cut short": [encode(HELLO)[:-3]],
    "a message and some more": [encode(HELLO) + b"\x00"],
    "too few fields": [raw("hello", "cpu")],
    "too many fields": [raw("beat", 1, 2, 3)],
    "an object for a list": [PREFIX + msgspec.msgpack.encode({"beat": 1})],
    "a number alone": [PREFIX + msgspec.msgpack.encode(12)],
    "a device that does not exist": [raw("hello", "tpu", "tpu", 1, 1, "0.1.0", "abc")],
    "a device that is nothing": [raw("hello", None, "cpu", 1, 1, "0.1.0", "abc")],
    "no threads": [raw("hello", "cpu", "cpu", 0, 1, "0.1.0", "abc")],
    "a text too long": [raw("failed", "x" * 1001)],
    "bytes for text": [raw("failed", b"bytes")],
    "text that is not UTF-8": [PREFIX + b"\x92\xa6failed\xa4\xff\xfe\xfd\xfc"],
    "half a surrogate": [PREFIX + b"\x92\xa6failed\xa3\xed\xa0\x80"],
    "a negative count": [done(rows=-1)],
    "a huge count": [done(lease=2**64 - 1)],
    "a count that is text": [done(lease="1")],
    "a count that is true": [done(rows=True)],
    "a count with a fraction": [done(rows=1.5)],
    "a loss that is no number": [done(loss=float("nan"))],
    "an infinite time": [done(seconds=float("inf"))],
    "a negative time": [done(seconds=-1.0)],
    "a metric that is not a number": [done(metric_sums=[float("nan")])],
    "a list that is a number": [done(metric_sums=3)],
    "an object with keys that cannot be hashed": [PREFIX + b"\x92\xa4done\x81\x90\x01"],
    "a date": [PREFIX + b"\x92\xa4done\xd6\xff\x00\x00\x00\x00"],
    "a list that claims four thousand million items": [
        PREFIX + b"\x92\xa5ready\xdd\xff\xff\xff\xff"
    ],
    "a text that claims four gigabytes": [PREFIX + b"\x92\xa6failed\xdb\xff\xff\xff\xff"],
    "lists in lists in lists": [PREFIX + b"\x91" * 60_000],
    "objects in objects in objects": [PREFIX + b"\x95\xa4done" + b"\x81\x01" * 30_000],
    "a frame as large as may be": [b"\xff" * 65_536],
    "two messages in one": [encode(Heartbeat()), encode(Heartbeat())],
    "a message behind an empty frame": [b"", encode(Heartbeat())],
    "many frames": [encode(Heartbeat())] * 100,
}


LARGE = [m for m in MESSAGES.values() if len(m) > 9 or len(m[0]) > 4096]
SMALL = [m for m in MESSAGES.values() if m not in LARGE]
OVERSIZED = [b"\xff" * 65_537]  # makes the coordinator close the connection


def random_message(random: Random) -> list[bytes]:
    """A random garbage message; one in a thousand is large."""
    if random.random() < 0.001:
        return random.choice(LARGE)
    if random.random() < 0.3:
        return random.choice(SMALL)
    noise = random.randbytes(random.randrange(200))
    return [random.choice([b"", MAGIC, PREFIX]) + noise]


class Flood:
    """A sender of garbage on the control plane."""

    def __init__(self, address: str, seed: int = 7) -> None:
        self._random = Random(seed)
        self._address = address
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=0)

    def send(self, messages: int) -> None:
        """Send `messages` messages; waits up to a minute while none are read."""
        for n in range(1, messages + 1):
            self._socket.send_multipart(random_message(self._random))
            if n % FRESH_IDENTITY_EVERY == 0:
                self._socket.send_multipart(OVERSIZED)
                self._socket.close(linger=1000)
                self._connect()

    def _connect(self) -> None:
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(
            zmq.SNDHWM, 10
        )  # so that all but a few of the sent messages have been read
        self._socket.setsockopt(zmq.SNDTIMEO, 60_000)
        self._socket.connect(self._address)
