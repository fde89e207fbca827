"""Servers as processes of this machine: to try out training on several servers.

On a machine with several NUMA nodes, each can be a server.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from hogbatch.cluster.host import ServerHost
from hogbatch.cluster.servers import PerServer, ServerFailed, ServerHandle
from hogbatch.cluster.surveys import answer
from hogbatch.run.launch.find import find_workers
from hogbatch.store.segment import Segment


class LocalServer(ServerHost):
    """A server on this machine (ServerHandle)."""

    def __init__(self, key: str, start: bytes, data: Segment, failed: ServerFailed) -> None:
        self.key = key
        super().__init__(start, data.memory, partial(failed, key))

    def introduce(
        self, number: int, version: int, peers: Mapping[int, ServerHandle], message: bytes
    ) -> None:
        own = {each: peer for each, peer in peers.items() if isinstance(peer, LocalServer)}
        self.connect(number, version, {each: peer.write for each, peer in own.items()}, message)


class LocalCluster:
    """`size` servers on this machine, each with the same workers."""

    relay = "the process that trains"
    listen: str | None = None
    lost: str | None = None

    def __init__(self, size: int, per_server: PerServer) -> None:
        """By default, the servers share the cores of the machine; the first one has its GPUs."""
        self.size = size
        found, _ = find_workers()
        cores = sum(each.threads for each in found)
        self._threads = per_server.threads(max(1, cores // size))
        gpus = [each for each in found if each.device == "gpu"]
        self._gpus = [str(each) for each in gpus[: per_server.gpus(len(gpus))]]
        self._data: Segment | None = None
        self._failed: ServerFailed | None = None

    @property
    def lines(self) -> list[str]:
        gpus = f"; server 0 also with {','.join(self._gpus)}" if self._gpus else ""
        return [f"{self.size} servers on this machine, each with cpu:{self._threads}{gpus}"]

    def workers(self, index: int) -> str:
        gpus = self._gpus if index == 0 else []
        return ",".join([f"cpu:{self._threads}", *gpus])

    def survey(self, requests: Sequence[bytes]) -> list[bytes]:
        return [answer(request) for request in requests]

    def begin(self, data: Segment, failed: ServerFailed) -> None:
        self._data, self._failed = data, failed

    def start(self, index: int, key: str, start: bytes) -> ServerHandle:
        assert self._data is not None and self._failed is not None, "begin comes first"
        return LocalServer(key, start, self._data, self._failed)

    def close(self) -> None:
        self._data = None
