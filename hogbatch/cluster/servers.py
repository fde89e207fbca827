"""The servers of a run, as the process that trains sees them: on this machine, or on a Ray cluster.

Without Ray, servers are processes of this machine: to try out training on several servers. On a
machine with several NUMA nodes, each can be a server.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

from hogbatch.cluster.host import ServerFailed, ServerHost
from hogbatch.cluster.ray.remote import RemoteCluster, RemoteServer
from hogbatch.cluster.surveys import answer
from hogbatch.run.launch.find import find_workers
from hogbatch.store.segment import Segment


def requested(per_server: str, cores: int, gpus: int) -> tuple[int, int]:
    """The CPU threads and GPUs that `--per-server` requests of a server that has so many.

    `per_server` is "cpu:auto,gpu:all" or as in "cpu:8,gpu:2"; without "gpu" there are none.
    """
    counts = dict(part.split(":") for part in per_server.split(","))
    cpu, gpu = counts["cpu"], counts.get("gpu", "0")
    return max(1, cores) if cpu == "auto" else int(cpu), gpus if gpu == "all" else int(gpu)


class LocalServer(ServerHost):
    """A server on this machine. Methods that read or write wait; the others do not."""

    def __init__(self, key: str, start: bytes, data: Segment, failed: ServerFailed) -> None:
        self.key = key
        super().__init__(start, data.memory, partial(failed, key))

    def introduce(
        self, number: int, version: int, peers: "Mapping[int, ServerHandle]", message: bytes
    ) -> None:
        """It is `number` among the servers of merges; `peers` are the others by number.

        After that, it receives `message`, an encoded `Servers`.
        """
        writes = {n: peer.write for n, peer in peers.items() if isinstance(peer, LocalServer)}
        self.connect(number, version, writes, message)


class LocalCluster:
    """`size` servers on this machine, each with the same workers."""

    relay = "the process that trains"  # what moves models without NIXL, for display
    listen: str | None = None  # IP address where servers reach this process; None: on this machine
    lost: str | None = None  # why no server can be started any more; None: they can be

    def __init__(self, size: int, per_server: str) -> None:
        """By default, the servers share the cores of the machine; the first one has its GPUs."""
        self.size = size
        found, _ = find_workers()
        cores = sum(each.threads for each in found)
        gpus = [str(each) for each in found if each.device == "gpu"]
        self._threads, count = requested(per_server, cores // size, len(gpus))
        self._gpus = gpus[:count]
        self._data: Segment | None = None
        self._failed: ServerFailed | None = None

    @property
    def lines(self) -> list[str]:
        """What is to be printed about the servers."""
        gpus = f"; server 0 also with {','.join(self._gpus)}" if self._gpus else ""
        return [f"{self.size} servers on this machine, each with cpu:{self._threads}{gpus}"]

    def workers(self, index: int) -> str:
        """The workers of server `index`, as in `--workers`."""
        gpus = self._gpus if index == 0 else []
        return ",".join([f"cpu:{self._threads}", *gpus])

    def survey(self, requests: Sequence[bytes]) -> list[bytes]:
        """Answer requests on the machines of the servers: request i on that of server i.

        See `hogbatch.cluster.surveys.answer`, and its errors; UsageError if a machine is lost.
        """
        return [answer(request) for request in requests]

    def begin(self, data: Segment, failed: ServerFailed) -> None:
        """Make `data`, the rows or DividedFiles, available to all servers; once, before `start`.

        `failed` is to be called when a server has failed or ended.
        """
        self._data, self._failed = data, failed

    def start(self, index: int, key: str, start: bytes) -> LocalServer:
        """Start server `index`, 0 to size - 1, under a new `key`; a machine may not be free yet."""
        assert self._data is not None and self._failed is not None, "begin comes first"
        return LocalServer(key, start, self._data, self._failed)

    def close(self) -> None:
        """Release everything."""
        self._data = None


ServerHandle: TypeAlias = LocalServer | RemoteServer
Cluster: TypeAlias = LocalCluster | RemoteCluster
