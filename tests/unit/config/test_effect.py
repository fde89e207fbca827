"""Settings that have no effect are refused, not ignored."""

import pytest

from hogbatch.config.effect import expect_effect, without_policy, without_servers
from hogbatch.config.sources import merge_sources
from hogbatch.errors import UsageError


def refused(message, **settings):
    config = merge_sources({"data": "a9a", **settings})
    with pytest.raises(UsageError, match=f"^{message}"):
        expect_effect(without_policy(config) | without_servers(config))


@pytest.mark.parametrize(
    ("setting", "policy", "needed"),
    [
        ("alpha", "adaptive", "paper-adaptive"),
        ("beta", "fixed", "paper-adaptive"),
        ("critical_batch", "paper-adaptive", "adaptive"),
    ],
)
def test_a_setting_of_another_policy(setting, policy, needed):
    given = {"data": "a9a", setting: 3}
    flag = f"--{setting.replace('_', '-')}"
    message = f"{flag} needs --policy {needed} or module:Class; got --policy {policy}"
    refused(message, policy=policy, **given)
    for other in (needed, "mine:Own"):
        assert without_policy(merge_sources({"policy": other, **given})) == {}
    assert without_policy(merge_sources({"data": "a9a", "policy": policy})) == {}


def test_settings_of_one_server_or_of_several():
    refused("--merge-rows needs --cluster auto, ADDRESS or local", merge_rows=100)
    refused("--servers needs --cluster", servers=2, cluster="none")
    refused("--workers has no meaning with --cluster; remove it", workers="cpu:2", cluster="local")
    config = merge_sources({"data": "a9a", "cluster": "local", "servers": 2, "plane": "relay"})
    assert without_servers(config) == {}
