"""hogbatch's own data plane: a segment that both processes map, and one message each way.

The segment's descriptor is handed over once. In each round the coordinator sends a Work and the
worker answers with a Done, as in training. A CPU worker changes the parameters in place; a worker
with a replica copies them and then adds its change.
"""

import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import Never

import numpy as np

from benchmarks.planes.contract import Floats, Setting, change, places, touched
from hogbatch.store.layout import arrange
from hogbatch.store.merge import delta
from hogbatch.store.model import SharedModel
from hogbatch.store.segment import Segment
from hogbatch.store.segment_server import (
    SegmentManifest,
    SegmentServer,
    describe_segments,
    fetch_segments,
)
from hogbatch.wire.address import Address, RunLock, find
from hogbatch.wire.messages import Done, Ready, ToCoordinator, Work
from hogbatch.wire.sockets import Dealer, Router

RUN = "planes"
TIMEOUT_S = 60.0
GO = Work(1, "train", 1, 0, 64, batch_size=64, learning_rate=0.1, fence=0)
DONE = Done(1, rows=64, updates=1, seconds=0.1, loss=1.0, skipped=0, metric_sums=())


class CoordinatorSide:
    """Owns the segment."""

    def __init__(self, folder: Path, count: int, setting: Setting) -> None:
        segments = {"shared": Segment.create("shared", arrange(SharedModel.fields(count, 0)))}
        self.params = SharedModel.of(segments["shared"]).params
        self._router = Router(folder)
        self._segment_server = SegmentServer.open(
            folder, SegmentManifest(RUN, "", 0, describe_segments(segments)), segments
        )
        control, store = self._router.address, self._segment_server.address
        self._run_lock = RunLock.take(folder)
        self._run_lock.publish(Address(RUN, os.getpid(), control, store, since=""))

    def accept(self) -> None:
        while not self._segment_server.serve():
            select.select([self._segment_server], [], [])
        self._worker, _ = self._next()

    def move(self) -> None:
        self._router.send(self._worker, GO)
        self._next()

    def _next(self) -> tuple[str, ToCoordinator]:
        while True:
            self._router.wait(TIMEOUT_S)
            for key, message in self._router.receive():
                return key, message


def work(folder: Path, count: int, setting: Setting) -> Never:
    address = find(folder)
    params = SharedModel.of(fetch_segments(address.store, TIMEOUT_S).segments["shared"]).params
    update = {"in place": in_place, "replica": replicated}[setting["worker"]](params)
    dealer = Dealer(address.control)
    dealer.send(Ready(()))
    while True:
        dealer.wait(TIMEOUT_S)
        if dealer.receive() is not None:
            update()
            dealer.send(DONE)


def in_place(params: Floats) -> Callable[[], None]:
    """A CPU worker's update."""
    return lambda: change(params)


def replicated(params: Floats) -> Callable[[], None]:
    """A GPU worker's pull and merge without the device: two passes over memory."""
    replica, difference = touched(len(params)), touched(len(params))
    difference[:] = 0
    here = places(len(params))

    def update() -> None:
        np.copyto(replica, params)
        difference[here] = -2 * replica[here]
        delta(params, difference)

    return update
