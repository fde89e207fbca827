"""The actor of one server: it starts the server's process and reads and writes its memory.

Arguments and results of its methods are bytes, text, numbers and arrays, so that nothing but these
is unpickled. Ray itself uses pickle between its processes; see docs/cluster.md, "Security".
"""

import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np
import ray
from numpy.typing import NDArray
from ray.exceptions import RayError

from hogbatch.cluster.host import ServerHost
from hogbatch.cluster.planes.base import TIMEOUT_S
from hogbatch.errors import HogbatchError

SILENCE_S: Final = 30.0  # without a call of the driver; then this server is of no use

# Calls of one group are made in order, on one thread, and do not wait for those of others.
GROUPS: Final = {"failures": 1, "introduce": 1, "memory": 1, "write": 2}


def _method(group: str) -> Callable[[Any], Any]:
    """Mark a method of the actor as one of a group of GROUPS."""
    return ray.method(concurrency_group=group)


class ServerActor:
    """See `ServerHost`, whose methods the driver calls through it."""

    def __init__(self) -> None:
        self._host: ServerHost | None = None
        self._failures: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._called = time.monotonic()
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, start: bytes, data: NDArray[np.uint8]) -> None:
        self._host = ServerHost(start, data, self._failures.put)

    @_method("failures")
    def failures(self, timeout_s: float) -> list[str]:
        """Why the process has failed or ended; waits for that up to `timeout_s`, else empty."""
        self._called = time.monotonic()
        found: list[str] = []
        with suppress(queue.Empty):
            found.append(self._failures.get(timeout=timeout_s))
            while True:
                found.append(self._failures.get_nowait())
        return found

    @_method("introduce")
    def introduce(
        self, number: int, version: int, peers: Mapping[int, Any], message: bytes
    ) -> None:
        """See `ServerHost.connect`; `peers` are actors."""
        writes = {each: partial(_write, peer) for each, peer in peers.items()}
        self._hosted.connect(number, version, writes, message)

    @_method("write")
    def write(
        self, sender: int, version: int, target: int, array: NDArray[np.uint8], note: bytes
    ) -> str | None:
        """See `ServerHost.write`; called by the actors of other servers."""
        return self._hosted.write(sender, version, target, array, note)

    @_method("memory")
    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of `ServerHost` that reads or writes its memory, or stops it."""
        return getattr(self._hosted, method)(*arguments)

    @property
    def _hosted(self) -> ServerHost:
        if self._host is None:
            raise HogbatchError("the process of this server was not started")
        return self._host

    def _watch(self) -> None:
        """End this actor, and with it its server, if the driver cannot be reached any more.

        The driver calls `failures` every second; without it, the others go on without this server.
        """
        while time.monotonic() - self._called < SILENCE_S:
            time.sleep(1.0)
        if self._host is not None:
            self._host.kill()
        os._exit(1)


def _write(
    peer: Any, sender: int, version: int, target: int, array: NDArray[np.uint8], note: bytes
) -> str | None:
    """Write to the server of another actor, through the object store."""
    try:
        written = peer.write.remote(sender, version, target, array, note)
        failure: str | None = ray.get(written, timeout=TIMEOUT_S)
    except RayError as error:
        return f"cannot be reached: {type(error).__name__}"
    return failure
