"""The moving mean of several servers is copied while they evaluate it."""

from types import SimpleNamespace

import numpy as np
import pytest

from hogbatch.cluster.platform import MeanOfServers
from hogbatch.wire.messages import UseMean

MEAN = np.ones(3, np.float32)


@pytest.fixture
def start():
    """The adapter of two servers with this mean, and what is sent and kept."""
    started = []

    def start(mean):
        sent, kept, reads = [], [], iter([mean])  # it is read once
        channel = SimpleNamespace(
            loaded=[SimpleNamespace(key="0"), SimpleNamespace(key="1")],
            send=lambda key, message: sent.append((key, message)),
            read_mean=lambda: next(reads),
        )
        started.append(MeanOfServers(lambda *arguments: kept.append(arguments), channel))
        return started[-1], sent, kept

    yield start
    for each in started:
        each.close()


def test_all_servers_are_told_and_the_mean_is_kept_while_it_is_shown(start):
    mean, sent, kept = start(MEAN)
    mean.keep("before")
    mean.show(True)
    mean.keep("best")
    mean.show(False)
    mean.keep("after")
    assert sent == [(key, UseMean(shown)) for shown in (True, False) for key in "01"]
    assert kept == [("before", None), ("best", MEAN), ("after", None)]


def test_the_model_of_this_process_is_kept_if_no_server_can_be_read(start):
    mean, _, kept = start(None)
    mean.show(True)
    mean.keep("last")
    assert kept == [("last", None)]
