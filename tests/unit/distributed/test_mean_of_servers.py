"""The moving mean of several servers is copied while they evaluate it."""

import numpy as np
import pytest

from hogbatch.distributed.adapters import MeanOfServers
from hogbatch.wire.codec import decode_to_worker
from hogbatch.wire.messages import UseMean


class Server:
    def __init__(self):
        self.delivered = []

    def deliver(self, frame):
        self.delivered.append(decode_to_worker(frame))


class Channel:
    def __init__(self, mean):
        self.loaded = [Server(), Server()]
        self.mean, self.reads = mean, 0

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
    assert [each.delivered for each in channel.loaded] == [[UseMean(True), UseMean(False)]] * 2
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
