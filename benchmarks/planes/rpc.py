"""gRPC over a Unix socket: the worker is the server, a move is one call.

Messages are bytes without protobuf, of any size. A model is one message, or a stream of pieces in
each direction. Received bytes are read-only, so they are copied into an array to compute on.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Never

import grpc
import numpy as np

from benchmarks.common.grpc_options import GRPC_OPTIONS
from benchmarks.planes.contract import ENDPOINT, Floats, Setting, change, pieces, touched

METHOD = "Move"
SERVICE = "planes.Worker"


class CoordinatorSide:
    """The client."""

    def __init__(self, folder: Path, count: int, setting: Setting) -> None:
        self.params = touched(count)
        self._piece_mb = setting["piece_mb"]
        self._channel = grpc.insecure_channel(target(folder), options(setting))
        stub = self._channel.unary_unary if whole(setting) else self._channel.stream_stream
        self._call = stub(f"/{SERVICE}/{METHOD}")

    def accept(self) -> None:
        grpc.channel_ready_future(self._channel).result()

    def move(self) -> None:
        if self._piece_mb is None:
            store([self._call(self.params.tobytes())], self.params)
        else:
            store(self._call(cut(self.params, self._piece_mb)), self.params)


def work(folder: Path, count: int, setting: Setting) -> Never:
    params = touched(count)

    def move(message: bytes, _: grpc.ServicerContext) -> bytes:
        store([message], params)
        change(params)
        return params.tobytes()

    def move_in_pieces(messages: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        store(messages, params)
        change(params)
        return cut(params, setting["piece_mb"])

    if whole(setting):
        handler = grpc.unary_unary_rpc_method_handler(move)
    else:
        handler = grpc.stream_stream_rpc_method_handler(move_in_pieces)
    server = grpc.server(ThreadPoolExecutor(1), options=options(setting))
    service = grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(target(folder))
    server.start()
    while True:
        server.wait_for_termination()


def whole(setting: Setting) -> bool:
    """Whether a model is one message."""
    return setting["piece_mb"] is None


def target(folder: Path) -> str:
    """The address of the server."""
    return f"unix:{folder / ENDPOINT}"


def options(setting: Setting) -> list[tuple[str, Any]]:
    """Channel options of both ends."""
    return list(GRPC_OPTIONS[setting["options"]].items())


def cut(params: Floats, megabytes: float) -> Iterator[bytes]:
    """The messages of one direction."""
    return (piece.tobytes() for piece in pieces(params, megabytes))


def store(messages: Iterable[bytes], params: Floats) -> None:
    """Copy received messages into `params`, one after the other."""
    start = 0
    for message in messages:
        part = np.frombuffer(message, np.float32)
        params[start : start + len(part)] = part
        start += len(part)
