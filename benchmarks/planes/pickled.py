"""Pickle (protocol 5) over ZeroMQ, which sends and receives frames without copying them.

In band, an array's bytes are part of the pickle; out of band (PEP 574) they are a frame of their
own. In both cases the receiver computes on the memory of the received frame. In pieces, each piece
is a message, and the receiver copies one piece while the next is being transferred.
"""

import pickle
from pathlib import Path
from typing import Any, Never

import numpy as np
import zmq

from benchmarks.planes.contract import ENDPOINT, Floats, Setting, change, pieces, touched


class CoordinatorSide:
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
    """The address of the socket."""
    return f"ipc://{folder / ENDPOINT}"


def send(connection: "zmq.Socket[bytes]", params: Floats, setting: Setting) -> None:
    """Send `params`, which must not change until they have arrived."""
    for piece in pieces(params, setting["piece_mb"]):
        buffers: list[Any] = []
        collect = buffers.append if setting["out_of_band"] else None
        head = pickle.dumps(piece, protocol=5, buffer_callback=collect)
        connection.send_multipart([head, *buffers], copy=False)


def receive(connection: "zmq.Socket[bytes]", params: Floats, setting: Setting) -> Floats:
    """The received parameters as a writable array; in pieces they are copied into `params`."""
    if setting["piece_mb"] is None:
        # libzmq may store a first, small message unaligned
        return np.require(_piece(connection), requirements="A")
    for piece in pieces(params, setting["piece_mb"]):
        np.copyto(piece, _piece(connection))
    return params


def _piece(connection: "zmq.Socket[bytes]") -> Floats:
    head, *frames = connection.recv_multipart(copy=False)
    array: Floats = pickle.loads(head.buffer, buffers=[frame.buffer for frame in frames])
    return array
