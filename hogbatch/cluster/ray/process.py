"""The process that calls Ray for the one that trains; see :mod:`hogbatch.cluster.ray.remote`.

    python -m hogbatch.cluster.ray.process --socket FD --launched PID

FD is the socket of the messages, PID the process that trains.
"""

import argparse
import os
import signal
import threading
from typing import Any

from hogbatch.cluster.frames import FrameSocket
from hogbatch.cluster.ray import calls
from hogbatch.cluster.ray.calls import Message
from hogbatch.cluster.ray.cluster import RayCluster
from hogbatch.cluster.servers import PerServer
from hogbatch.coordinator.interrupts import ENDING_SIGNALS
from hogbatch.machine.process import die_with
from hogbatch.store.segment import Segment


class ServedCluster:
    """A RayCluster whose methods, and those of its servers, are called by messages."""

    def __init__(self, frames: FrameSocket) -> None:
        self._frames = frames
        self._cluster: RayCluster

    def answer(self, message: Message, segment: Segment | None) -> None:
        """Call a method of the cluster or of a server, and send its result."""
        target: object = self
        if message.method != "open":
            target = self._cluster.servers[message.server] if message.server else self._cluster
        calls.answer(self._frames, target, message, segment)

    def open(self, address: str, size: int, per_server: str) -> list[Any]:
        """Connect with the cluster; return what the process that trains needs to know of it."""
        self._cluster = RayCluster(address, size, PerServer.parse(per_server), self._failed)
        for number in ENDING_SIGNALS:  # a job of Ray signals all processes that it stops
            signal.signal(number, signal.SIG_IGN)  # the process that trains ends this one
        return [self._cluster.lines, self._cluster.listen, self._cluster.workers]

    def _failed(self, key: str, reason: str) -> None:
        calls.send(self._frames, Message(calls.FAILED, (key, reason)))


def main() -> None:
    """Answer calls until the process that trains ends."""
    parser = argparse.ArgumentParser(prog="hogbatch.cluster.ray.process", allow_abbrev=False)
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--launched", type=int, required=True)
    options = parser.parse_args()
    die_with(options.launched)
    frames = FrameSocket.inherited(options.socket)
    served = ServedCluster(frames)
    while received := calls.receive(frames):
        message, _ = received
        if message.server and message.number:  # it waits for the server; others need not
            threading.Thread(target=served.answer, args=received, daemon=True).start()
        else:
            served.answer(*received)
    os._exit(0)


if __name__ == "__main__":
    main()
