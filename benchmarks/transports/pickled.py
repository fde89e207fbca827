"""Pickle (protocol 5) over ZeroMQ, which copies no frame when it sends or receives.

In band, an array's bytes are part of the pickle; out of band (PEP 574) they travel as a frame of
their own. Either way the receiver computes on the memory that they arrive in. In pieces, each is a
message, and the receiver copies one while the next is under way.
"""

import pickle
from pathlib import Path
from typing import Any, Never

import numpy as np
import zmq

from transports.contract import ENDPOINT, Floats, Setting, change, pieces, touched


class Coordinator:
    """Binds."""

    def __init__(self, folder: Path, count: int, setting: Setting) -> None:
        self.params = touched(count)
        self._setting = setting
        self._socket = dealer()
        self._socket.bind(endpoint(folder))

    def accept(self) -> None:
        self._socket.recv()

    def move(self) -> None:
        send(self._socket, self.params, self._setting)
        self.params = receive(self._socket, self.params, self._setting)


def work(folder: Path, count: int, setting: Setting) -> Never:
    params = touched(count)
    connection = dealer()
    connection.connect(endpoint(folder))
    connection.send(b"here")
    while True:
        params = receive(connection, params, setting)
        change(params)
        send(connection, params, setting)


def dealer() -> "zmq.Socket[bytes]":
    """A socket with one peer."""
    return zmq.Context.instance().socket(zmq.DEALER)


def endpoint(folder: Path) -> str:
    """Where the two meet."""
    return f"ipc://{folder / ENDPOINT}"


def send(connection: "zmq.Socket[bytes]", params: Floats, setting: Setting) -> None:
    """Send `params`, which must stay as they are until they have arrived."""
    for piece in pieces(params, setting["piece_mb"]):
        buffers: list[Any] = []
        beside = buffers.append if setting["out_of_band"] else None
        head = pickle.dumps(piece, protocol=5, buffer_callback=beside)
        connection.send_multipart([head, *buffers], copy=False)


def receive(connection: "zmq.Socket[bytes]", params: Floats, setting: Setting) -> Floats:
    """What arrives, as a writable array: `params` themselves where it arrives in pieces."""
    if setting["piece_mb"] is None:
        # libzmq may put the memory of a first, small message anywhere
        return np.require(_piece(connection), requirements="A")
    for piece in pieces(params, setting["piece_mb"]):
        np.copyto(piece, _piece(connection))
    return params


def _piece(connection: "zmq.Socket[bytes]") -> Floats:
    head, *frames = connection.recv_multipart(copy=False)
    array: Floats = pickle.loads(head.buffer, buffers=[frame.buffer for frame in frames])
    return array
