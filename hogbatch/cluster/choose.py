"""The cluster that a run trains on, and settings that have no meaning there."""

from importlib.util import find_spec

from hogbatch.cluster.platform import SeveralServers
from hogbatch.cluster.ray.remote import RemoteCluster
from hogbatch.cluster.servers import LocalCluster
from hogbatch.config.effect import changed, expect_effect, without_policy, without_servers
from hogbatch.config.learning import TABLE_SCALES
from hogbatch.config.train import TrainConfig
from hogbatch.errors import UsageError
from hogbatch.run.callbacks import Callbacks
from hogbatch.run.platform import Platform
from hogbatch.run.setup import ReadData, load_data
from hogbatch.run.this_server import ThisServer


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
    problem = (
        "has no meaning with --data-copies, with which only numbers are read; remove one of them"
    )
    expect_effect(dict.fromkeys(changed(config, (*columns, "class_weight")), problem))
