"""The process that calls Ray for the one that trains; see :mod:`hogbatch.cluster.ray.remote`.

    python -m hogbatch.cluster.ray.process --socket FD --launched PID

FD is the socket of the messages, PID the process that trains.
"""

import argparse
import os
import threading

from hogbatch.cluster.frames import FrameSocket
from hogbatch.cluster.ray import calls
from hogbatch.cluster.ray.calls import Message
from hogbatch.cluster.ray.cluster import RayCluster
from hogbatch.machine.process import die_with
from hogbatch.store.segment import Segment


def main() -> None:
    """Answer calls until the process that trains ends."""
    parser = argparse.ArgumentParser(prog="hogbatch.cluster.ray.process", allow_abbrev=False)
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--launched", type=int, required=True)
    options = parser.parse_args()
    die_with(options.launched)
    frames = FrameSocket(options.socket)

    def failed(key: str, reason: str) -> None:
        calls.send(frames, Message(calls.FAILED, (key, reason)))

    cluster = RayCluster(failed)

    def answer(message: Message, segment: Segment | None) -> None:
        """Call a method of the cluster or of a server, and send its result."""
        target = cluster.servers[message.server] if message.server else cluster
        calls.answer(frames, target, message, segment)

    while received := calls.receive(frames):
        message, _ = received
        if message.server and message.number:  # it waits for the server; others need not
            threading.Thread(target=answer, args=received, daemon=True).start()
        else:
            answer(*received)
    os._exit(0)


if __name__ == "__main__":
    main()
