"""Pickle over gRPC: each member is a server and the client of the other one.

A change is one message, or a stream of pieces, which are added as they arrive.
"""

import pickle
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np

from benchmarks.common.grpc_options import GRPC_OPTIONS
from benchmarks.merges.contract import FLOATS_PER_MB, TIMEOUT_S, Floats, Setting, touched

SERVICE, METHOD = "merges.Member", "Take"


class Member:
    """Sends its change and adds what it gets."""

    def __init__(self, folder: Path, place: int, count: int, setting: Setting) -> None:
        self.change, self.total = touched(count), touched(count)
        self._folder, self._place, self._setting = folder, place, setting
        self._options = list(GRPC_OPTIONS[setting["options"]].items())
        self._whole = setting["piece_mb"] is None
        self._piece = count if self._whole else setting["piece_mb"] * FLOATS_PER_MB
        self._arrived = queue.Queue[tuple[int, Floats] | None]()

    def connect(self) -> None:
        if self._whole:
            handler = grpc.unary_unary_rpc_method_handler(self._take)
        else:
            handler = grpc.stream_unary_rpc_method_handler(self._take_pieces)
        self._server = grpc.server(ThreadPoolExecutor(1), options=self._options)
        service = grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler})
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(self._target(self._place))
        self._server.start()
        channel = grpc.insecure_channel(self._target(1 - self._place), self._options)
        grpc.channel_ready_future(channel).result(TIMEOUT_S)
        stub = channel.unary_unary if self._whole else channel.stream_unary
        self._call = stub(f"/{SERVICE}/{METHOD}")

    def merge(self, number: int) -> None:
        if self._whole:
            sent = self._call.future(pickle.dumps((0, self.change), protocol=5))
        else:
            sent = self._call.future(self._pieces())
        while (each := self._arrived.get(timeout=TIMEOUT_S)) is not None:
            start, part = each
            here = slice(start, start + len(part))
            np.add(self.change[here], part, out=self.total[here])
        sent.result(TIMEOUT_S)

    def _pieces(self) -> Iterator[bytes]:
        for start in range(0, len(self.change), self._piece):
            yield pickle.dumps((start, self.change[start : start + self._piece]), protocol=5)

    def _take(self, message: bytes, _: grpc.ServicerContext) -> bytes:
        return self._take_pieces(iter([message]), _)

    def _take_pieces(self, messages: Iterator[bytes], _: grpc.ServicerContext) -> bytes:
        for message in messages:
            self._arrived.put(pickle.loads(message))
        self._arrived.put(None)
        return b""

    def _target(self, place: int) -> str:
        return f"unix:{self._folder / str(place)}"
