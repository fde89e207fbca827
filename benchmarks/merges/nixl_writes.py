"""hogbatch's own exchange over NIXL; UCX_TLS in the setting chooses the transport."""

import threading
import time
from pathlib import Path
from typing import Final

from benchmarks.merges.contract import TIMEOUT_S, Setting
from hogbatch.cluster.transfers import Reduction
from hogbatch.distributed.buffers import ExchangeBuffers
from hogbatch.distributed.exchange import ChangeExchange
from hogbatch.distributed.planes.nixl import NixlPlane

FLOAT: Final = 4  # bytes
RING: Final = Reduction("ring")


class Member:
    """A server with the number of its place."""

    def __init__(self, folder: Path, place: int, count: int, setting: Setting) -> None:
        self._folder, self._place = folder, place
        self._buffers = ExchangeBuffers.create(count, [RING], servers=2)
        self._plane = NixlPlane(self._buffers, TIMEOUT_S)
        self._exchange = ChangeExchange(self._buffers, self._plane, place, TIMEOUT_S)
        self._abort = threading.Event()
        self.change, self.total = self._buffers.change, self._buffers.sum

    def connect(self) -> None:
        temporary = self._folder / f"{self._place}.temporary"
        temporary.write_bytes(self._plane.address)
        temporary.rename(self._folder / f"{self._place}.address")
        other = self._folder / f"{1 - self._place}.address"
        while not other.exists():
            time.sleep(0.01)
        self._plane.connect({1 - self._place: other.read_bytes()})

    def merge(self, number: int) -> None:
        self._exchange.reduce(number, 0, [0, 1], 1.0, RING, self._abort)

    def transfer(self, nbytes: int) -> None:
        """Write `nbytes` to the other one, which writes as many here, and wait for these."""
        start = self._buffers.offset("change")
        target = self._buffers.offset("merged")
        self._plane.write(1 - self._place, (start, start + nbytes), target, b"transfer")
        while not any(True for _ in self._plane.notes()):
            time.sleep(20e-6)
