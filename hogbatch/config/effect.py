"""Settings that have no effect together with other settings."""

from collections.abc import Iterable
from typing import Final

from hogbatch.config.flags import dashed
from hogbatch.config.train import TrainConfig
from hogbatch.errors import UsageError

POLICY_OF: Final = {  # setting → the policy of hogbatch that uses it
    "alpha": "paper-adaptive",
    "beta": "paper-adaptive",
    "critical_batch": "adaptive",
}
# Settings of the workers and the model of this process, which has none with several servers.
ONE_SERVER: Final = ("deterministic", "workers", "start_with", "init", "refit", "members", "memory")
SEVERAL_SERVERS: Final = (
    *("servers", "per_server", "data_copies"),
    *("merge_rows", "server_merge", "plane"),
)

Problems = dict[str, str]  # name of a setting → why it has no effect


def without_policy(config: TrainConfig) -> Problems:
    """The settings that differ from their defaults and that the batch policy does not use."""
    if ":" in config.policy:  # a policy of the user gets all of them
        return {}
    return {
        name: f"needs --policy {POLICY_OF[name]} or module:Class; got --policy {config.policy}"
        for name in changed(config, POLICY_OF)
        if POLICY_OF[name] != config.policy
    }


def without_servers(config: TrainConfig) -> Problems:
    """The settings that differ from their defaults and need several servers, or only one."""
    if config.cluster is None:
        reason = "needs --cluster auto, ADDRESS or local"
        return dict.fromkeys(changed(config, SEVERAL_SERVERS), reason)
    return dict.fromkeys(changed(config, ONE_SERVER), "has no meaning with --cluster; remove it")


def changed(config: TrainConfig, names: Iterable[str]) -> list[str]:
    """Those of `names` that differ from their defaults."""
    usual = TrainConfig()
    return [name for name in names if getattr(config, name) != getattr(usual, name)]


def expect_effect(problems: Problems) -> None:
    """UsageError for the first of the settings that have no effect."""
    for name, problem in problems.items():
        raise UsageError(f"--{dashed(name)} {problem}")
