"""The moving mean of several servers is copied while they evaluate it."""

from typing import NamedTuple

import numpy as np
import pytest

from hogbatch.cluster.adapters import MeanOfServers
from hogbatch.wire.messages import UseMean


class Server(NamedTuple):
    key: str


class Channel:
    def __init__(self, mean):
        self.loaded = [Server("0"), Server("1")]
        self.mean, self.reads, self.sent = mean, 0, []

    def send(self, key, message):
        self.sent.append((key, message))

    def read_mean(self):
        self.reads += 1
        return self.mean


@pytest.fixture
def kept():
    return []


def adapter(channel, kept):
    return MeanOfServers(lambda evaluation, params: kept.append((evaluation, params)), channel)


def test_all_servers_are_told_and_the_mean_is_read_once(kept):
    channel = Channel(np.ones(3, np.float32))
    mean = adapter(channel, kept)
    mean.show(True)
    mean.keep("best")
    mean.show(False)
    mean.close()
    assert channel.sent == [(key, UseMean(shown)) for shown in (True, False) for key in "01"]
    assert channel.reads == 1
    assert kept == [("best", channel.mean)]


def test_the_model_of_this_process_is_kept_while_no_mean_is_shown(kept):
    channel = Channel(np.ones(3, np.float32))
    mean = adapter(channel, kept)
    mean.keep(None)
    mean.show(True)
    mean.show(False)
    mean.keep(None)
    mean.close()
    assert kept == [(None, None), (None, None)]


def test_the_model_of_this_process_is_kept_if_no_server_can_be_read(kept):
    mean = adapter(Channel(None), kept)
    mean.show(True)
    mean.keep("last")
    mean.close()
    assert kept == [("last", None)]
