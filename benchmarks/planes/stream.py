"""A Unix stream socket and nothing else: the lower bound of any copy through the kernel."""

import socket
from pathlib import Path
from typing import Never

from benchmarks.planes.contract import ENDPOINT, Floats, Setting, change, touched


class CoordinatorSide:
    """Listens."""

    def __init__(self, folder: Path, count: int, setting: Setting) -> None:
        self.params = touched(count)
        self._setting = setting
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / ENDPOINT))
        self._listener.listen()

    def accept(self) -> None:
        connection, _ = self._listener.accept()
        self._connection = enlarged(connection, self._setting)

    def move(self) -> None:
        self._connection.sendall(self.params.data.cast("B"))
        fill(self._connection, self.params)


def work(folder: Path, count: int, setting: Setting) -> Never:
    params = touched(count)
    connection = enlarged(socket.socket(socket.AF_UNIX), setting)
    connection.connect(str(folder / ENDPOINT))
    while True:
        fill(connection, params)
        change(params)
        connection.sendall(params.data.cast("B"))


def enlarged(connection: socket.socket, setting: Setting) -> socket.socket:
    """`connection` with the buffer size of the setting; Unix sockets have only a send buffer."""
    if setting["buffer_mb"]:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, setting["buffer_mb"] << 20)
    return connection


def fill(connection: socket.socket, params: Floats) -> None:
    """Receive all of `params`."""
    rest = params.data.cast("B")
    while rest:
        got = connection.recv_into(rest, flags=socket.MSG_WAITALL)
        if not got:
            raise EOFError(f"the connection was closed with {len(rest)} bytes missing")
        rest = rest[got:]
