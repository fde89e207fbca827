"""The cluster that a run trains on, and settings that have no meaning there.

Without Ray, servers are processes of this machine: to try out training on several servers. On a
machine with several NUMA nodes, each can be a server.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec

from hogbatch.cluster.host import ServerHost
from hogbatch.cluster.platform import SeveralServers
from hogbatch.cluster.ray.remote import RemoteCluster
from hogbatch.cluster.servers import ServerFailed, ServerHandle, requested
from hogbatch.cluster.surveys import answer
from hogbatch.config.effect import expect_effect, without_policy, without_servers
from hogbatch.config.flags import dashed
from hogbatch.config.learning import TABLE_SCALES
from hogbatch.config.train import TrainConfig
from hogbatch.errors import UsageError
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.launch.find import find_workers
from hogbatch.run.platform import Platform
from hogbatch.run.setup import ReadData, load_data
from hogbatch.run.this_server import ThisServer
from hogbatch.store.segment import Segment


def choose_platform(
    config: TrainConfig, *, launch: bool, callbacks: Callbacks | None = None
) -> Platform:
    """The platform of a run: this server, where `launch` starts its workers, or several servers.

    UsageError if there is no such cluster, if it has too few servers, or if settings exclude each
    other.
    """
    expect_effect(without_policy(config) | without_servers(config))
    callbacks = callbacks or Callbacks()
    if config.cluster is None:
        return ThisServer(launch, callbacks)
    _check_division(config)
    if config.cluster == "local":
        return SeveralServers(LocalCluster(config.servers, config.per_server), callbacks)
    if find_spec("ray") is None:
        raise UsageError(
            f"--cluster {config.cluster} needs Ray: pip install 'hogbatch[ray]'; or use "
            "--cluster local to try it out on this machine"
        )
    cluster = RemoteCluster(config.cluster, config.servers, config.per_server)
    return SeveralServers(cluster, callbacks)


def reader(config: TrainConfig, platform: Platform) -> ReadData:
    """The reader of the data that `config` names: this process, or servers."""
    if config.data_copies is None:
        return load_data
    assert isinstance(platform, SeveralServers), "choose_platform has checked it"
    return platform.read_divided


def _check_division(config: TrainConfig) -> None:
    """UsageError if the data cannot be divided among the servers."""
    if config.data_copies is None:
        return
    if config.data_copies > config.servers:
        raise UsageError(
            f"--data-copies {config.data_copies}: expected at most as many as --servers, "
            f"{config.servers}"
        )
    if config.scale in TABLE_SCALES:
        raise UsageError(
            f"--scale {config.scale} needs a table, but with --data-copies only numbers are read; "
            "use another --scale, or train without --data-copies"
        )
    columns = "drop", "categorical", "numeric", "text", "sequence", "sample_weight", "group", "time"
    for name in (*columns, "class_weight"):
        if getattr(config, name):
            raise UsageError(
                f"--{dashed(name)} has no meaning with --data-copies, with which only numbers are "
                "read; remove one of them"
            )


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
