"""Merges between servers that are threads of this process."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from benchmarks.common.job import WITHIN_S
from hogbatch.cluster.model_merges import _NOTE
from hogbatch.cluster.planes.base import PlaneError
from tests.support.merging_servers import Servers
from tests.support.pairs import pairs


def normal(count, size, seed=0):
    return np.random.default_rng(seed).standard_normal((count, size)).astype(np.float32)


@pytest.fixture
def servers():
    started = []

    def start(*arguments, **settings):
        started.append(Servers(*arguments, **settings))
        return started[-1]

    yield start
    for each in started:
        each.close()


def same_bits(results):
    assert len({each.tobytes() for each in results}) == 1
    return results[0]


@pairs(weighted=[False, True], count=[1, 2, 3, 4, 5], size=[1, 7, 100_000])
def test_all_servers_get_the_same_bits(servers, weighted, count, size):
    changes = normal(count, size)
    weights = np.arange(1, count + 1) / 4 if weighted else np.ones(count)
    cluster = servers(changes)
    total = same_bits(cluster.reduce(weights=weights))
    for buffers, change in zip(cluster.buffers.values(), changes, strict=True):
        assert (buffers.change == change).all()
    np.testing.assert_allclose(total, weights @ changes, rtol=1e-5, atol=1e-5)


def test_writes_that_fail_are_noticed_at_the_end_unless_one_server_is_alone(servers, monkeypatch):
    cluster = servers(np.ones((2, 10)))

    def fail():
        raise PlaneError(11, "is lost")

    monkeypatch.setattr(cluster.planes[10], "finish", fail)
    with pytest.raises(PlaneError, match="is lost"):
        cluster.reduce()
    assert (cluster.reduce([10], attempt=1)[0] == 1.0).all()


def test_messages_of_later_attempts_are_kept_and_those_of_earlier_ones_dropped(servers):
    cluster = servers(np.ones((2, 4)), timeout_s=0.01)
    other = cluster.planes[11]
    for attempt, step in ((0, 0), (0, 9), (1, 0), (2, 0)):
        other.start(10, (0, 0), 0, _NOTE.pack(1, attempt, step))
    exchange = cluster.exchanges[10]
    for attempt, kept in ((0, {0, 1, 2}), (1, {2})):
        with pytest.raises(PlaneError, match="did not answer"):  # in the second step
            cluster.start(10, [10, 11], attempt=attempt)
        assert {each[1] for each in exchange._arrived} == kept


def test_a_merge_can_be_aborted(servers):
    cluster = servers(normal(2, 100))
    with ThreadPoolExecutor(1) as pool:
        merge = pool.submit(cluster.start, 10, [10, 11])
        deadline = time.monotonic() + WITHIN_S
        while cluster.buffers[11].sum[0] == 0.0 and time.monotonic() < deadline:
            time.sleep(0.001)  # until the other has begun
        cluster.abort.set()
        with pytest.raises(PlaneError, match="the merge was aborted"):
            merge.result(WITHIN_S)


def test_survivors_repeat_a_merge_without_a_lost_server(servers):
    changes = normal(4, 1000)
    cluster = servers(changes, timeout_s=0.2)
    survivors, lost = [10, 11, 12], 13
    errors = []

    def attempt_on(number):
        with pytest.raises(PlaneError, match="did not answer within") as caught:
            cluster.start(number, [*survivors, lost], merge=5)
        errors.append(caught.value.server)

    threads = [threading.Thread(target=attempt_on, args=(number,)) for number in survivors]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WITHIN_S)
    assert lost in errors
    for number in survivors:
        cluster.exchanges[number].timeout_s = WITHIN_S
    cluster.connect(survivors)
    total = same_bits(cluster.reduce(survivors, merge=5, attempt=1))
    assert (total == same_bits(servers(changes[:3]).reduce())).all()
