"""Servers as processes of this machine: to try out training on several servers.

On a machine with several NUMA nodes, each can be a server.
"""

import threading
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hogbatch.cluster.host import ModelArrays, ServerHost
from hogbatch.cluster.resources import PerServer
from hogbatch.cluster.servers import ServerArrays, ServerFailed, ServerHandle
from hogbatch.cluster.surveys import answer
from hogbatch.errors import HogbatchError
from hogbatch.run.launch.find import find_workers

POLL_S = 0.2  # between two looks whether the run has ended


class LocalServer:
    """A server on this machine."""

    def __init__(self, key: str, name: str, host: ServerHost, failed: ServerFailed) -> None:
        self.key, self.name, self.host = key, name, host
        self._failed = failed
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def introduce(
        self, number: int, version: int, peers: Mapping[int, ServerHandle], message: bytes
    ) -> None:
        own = {each: peer for each, peer in peers.items() if isinstance(peer, LocalServer)}
        writes = {each: partial(_write, peer) for each, peer in own.items()}
        self.host.introduce(number, version, writes, message)

    def read_model(self) -> ModelArrays:
        return self.host.read_model()

    def read_mean(self) -> NDArray[np.float32]:
        return self.host.read_mean()

    def write_model(self, arrays: ModelArrays) -> None:
        self.host.write_model(arrays)

    def stop(self) -> dict[str, bytes]:
        self._ended.set()
        return self.host.stop()

    def kill(self) -> None:
        self._ended.set()
        self.host.kill()

    def _watch(self) -> None:
        while not self._ended.is_set():
            for reason in self.host.failures(POLL_S):
                self._failed(self.key, reason)


def _write(
    peer: LocalServer, sender: int, version: int, target: int, array: NDArray[np.uint8], note: bytes
) -> str | None:
    try:
        return peer.host.write(sender, version, target, array, note)
    except (HogbatchError, OSError) as error:
        return f"cannot be reached: {error}"


class LocalCluster:
    """`size` servers on this machine, each with the same workers."""

    relay = "the process that trains"
    listen: str | None = None

    def __init__(self, size: int, per_server: PerServer) -> None:
        """By default, the servers share the cores of the machine; the first one has its GPUs."""
        self.size = size
        found = find_workers().workers
        cores = sum(each.threads for each in found)
        self._threads = per_server.threads(max(1, cores // size))
        gpus = [each for each in found if each.device == "gpu"]
        self._gpus = [str(each) for each in gpus[: per_server.gpus(len(gpus))]]
        self._arrays: ServerArrays | None = None
        self._failed: ServerFailed | None = None

    @property
    def line(self) -> str:
        gpus = f"; server 0 also with {','.join(self._gpus)}" if self._gpus else ""
        return f"{self.size} servers on this machine, each with cpu:{self._threads}{gpus}"

    def workers(self, place: int) -> str:
        gpus = self._gpus if place == 0 else []
        return ",".join([f"cpu:{self._threads}", *gpus])

    def survey(self, requests: Sequence[bytes]) -> list[bytes]:
        return [answer(request) for request in requests]

    def begin(self, arrays: ServerArrays, failed: ServerFailed) -> None:
        self._arrays, self._failed = arrays, failed

    def start(self, place: int, key: str, start: bytes) -> ServerHandle:
        assert self._arrays is not None and self._failed is not None, "begin comes first"
        host = ServerHost(start, *self._arrays)
        return LocalServer(key, f"server {place}", host, self._failed)

    def close(self) -> None:
        self._arrays = None
