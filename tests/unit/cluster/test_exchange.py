"""Merges between servers that are threads of this process."""

import threading
import time
from contextlib import suppress

import numpy as np
import pytest

import hogbatch.cluster.sums as sums
from benchmarks.common.job import WITHIN_S
from hogbatch.cluster.buffers import ExchangeBuffers
from hogbatch.cluster.decisions.areas import ALL
from hogbatch.cluster.decisions.transfers import Reduction
from hogbatch.cluster.exchange import ChangeExchange, MergeAborted, PlaneError
from hogbatch.errors import UsageError
from tests.support.memory_plane import MemoryPlane
from tests.support.merging_servers import Servers
from tests.support.pairs import pairs

RING, HALVING, BFLOAT16, TOP_K, MEDIAN = ALL


def normal(count, size, seed=0):
    return np.random.default_rng(seed).standard_normal((count, size)).astype(np.float32)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(sums, "PIECE", 64)
    sums._pieces.cache_clear()
    yield
    sums._pieces.cache_clear()


@pytest.fixture
def servers():
    started = []

    def start(changes, **settings):
        started.append(Servers(changes, **settings))
        started[-1].connect()
        return started[-1]

    yield start
    for each in started:
        each.close()


def same_bits(results):
    assert len({each.tobytes() for each in results}) == 1
    return results[0]


@pairs(how=ALL, count=[1, 2, 3, 4, 5], size=[1, 7, 1000, 5000])
def test_all_servers_get_the_same_bits(servers, how, count, size):
    changes = normal(count, size)
    cluster = servers(changes)
    same_bits(cluster.reduce(how, weights=np.linspace(0.5, 1.5, count)))
    for buffers, change in zip(cluster.buffers.values(), changes, strict=True):
        assert (buffers.change == change).all()


def test_one_server_alone_does_not_wait_for_what_it_sent_to_a_lost_one(servers, monkeypatch):
    cluster = servers(np.ones((1, 10)))

    def fail():
        raise PlaneError(3, "is lost")

    monkeypatch.setattr(cluster.planes[10], "finish", fail)
    assert (cluster.reduce(RING)[0] == 1.0).all()


@pytest.mark.parametrize("how", [RING, HALVING, BFLOAT16])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_the_sum_is_weighted(servers, how, count):
    changes, weights = normal(count, 3000), np.arange(1, count + 1) / 4
    total = same_bits(servers(changes).reduce(how, weights=weights))
    tolerance = 0.02 if how is BFLOAT16 else 1e-5
    np.testing.assert_allclose(total, weights @ changes, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("how", [BFLOAT16, TOP_K, MEDIAN])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_was_not_sent_is_sent_later(servers, how, count):
    size, merges = 2000, 60
    cluster = servers(np.zeros((count, size)))
    wanted, total = np.zeros(size), np.zeros(size)
    same = normal(1, size, 9)[0]  # of all servers, so that their median is their mean
    for merge in range(merges):
        changes = np.tile(same, (count, 1)) + (how is not MEDIAN) * normal(count, size, merge)
        cluster.change(changes)
        total += same_bits(cluster.reduce(how, merge))
        wanted += changes.sum(0)
        for exchange in cluster.exchanges.values():
            exchange.commit()
    left = sum(each.residual.astype(float) for each in cluster.buffers.values())
    np.testing.assert_allclose(total + left, wanted, atol=2e-2)
    assert np.linalg.norm(total) > 0.5 * np.linalg.norm(wanted)


@pytest.mark.parametrize("how", [BFLOAT16, TOP_K, MEDIAN])
def test_without_a_commit_nothing_is_lost(servers, how):
    cluster = servers(normal(3, 1000))
    cluster.reduce(how, merge=1)
    for exchange in cluster.exchanges.values():
        exchange.commit()
    before = [buffers.residual.copy() for buffers in cluster.buffers.values()]
    first = same_bits(cluster.reduce(how, merge=2))
    again = same_bits(cluster.reduce(how, merge=2, attempt=1))
    assert (first == again).all()
    for buffers, residual in zip(cluster.buffers.values(), before, strict=True):
        assert (buffers.residual == residual).all()


@pytest.mark.parametrize("how", [BFLOAT16, TOP_K, MEDIAN])
def test_residuals_stay_finite(servers, how):
    changes = normal(3, 1000)
    changes[1, ::7], changes[2, 3] = np.nan, np.inf
    cluster = servers(changes)
    same_bits(cluster.reduce(how))
    for number, exchange in cluster.exchanges.items():
        exchange.commit()
        assert np.isfinite(cluster.buffers[number].residual).all()


def test_garbage_of_two_servers_of_five_is_outvoted(servers):
    changes = normal(1, 4000) + 0.3 * normal(5, 4000, 1)
    honest = changes[[0, 2, 4]].mean(0)
    changes[1], changes[3] = 1e15, np.nan
    how = Reduction(robust="median", fraction=1.0)
    total = same_bits(servers(changes, reductions=[how]).reduce(how, weights=[0.2] * 5)) / 0.8
    assert np.linalg.norm(total - honest) < 0.3 * np.linalg.norm(honest)


def test_a_merge_can_be_aborted(servers):
    cluster = servers(normal(2, 100))
    errors = []

    def merge():
        try:
            cluster.exchanges[10].reduce(1, 0, [10, 11], 1.0, RING, cluster.abort)
        except MergeAborted as error:
            errors.append(error)

    thread = threading.Thread(target=merge)
    thread.start()
    deadline = time.monotonic() + WITHIN_S
    while cluster.buffers[11].sum[0] == 0.0 and time.monotonic() < deadline:
        time.sleep(0.001)  # until the other has begun
    cluster.abort.set()
    thread.join(WITHIN_S)
    assert "attempt 0 of merge 1" in str(errors[0])


def test_a_server_that_does_not_answer_is_named(servers):
    cluster = servers(normal(3, 100), timeout_s=0.05)
    with pytest.raises(PlaneError, match="did not answer within") as caught:
        cluster.exchanges[10].reduce(1, 0, [10, 12, 11], 1.0, RING, cluster.abort)
    assert caught.value.server == 11


@pytest.mark.parametrize("how", ALL)
def test_survivors_repeat_a_merge_without_a_lost_server(servers, how):
    changes = normal(4, 1000)
    cluster = servers(changes, timeout_s=0.2)
    with pytest.raises(PlaneError):  # 13 does not take part
        all_numbers = [10, 11, 12, 13]
        threads = [
            threading.Thread(target=attempt_quietly, args=(cluster, number, all_numbers, how))
            for number in (11, 12)
        ]
        for each in threads:
            each.start()
        try:
            cluster.exchanges[10].reduce(5, 0, all_numbers, 1.0, how, cluster.abort)
        finally:
            for each in threads:
                each.join(WITHIN_S)
    survivors = [10, 11, 12]
    for number in survivors:
        cluster.exchanges[number]._timeout_s = WITHIN_S
    cluster.connect(survivors)
    total = same_bits(cluster.reduce(how, merge=5, attempt=1, numbers=survivors))
    fresh = servers(changes[:3])
    assert (total == same_bits(fresh.reduce(how))).all()


def attempt_quietly(cluster, number, numbers, how):
    with suppress(PlaneError):
        cluster.exchanges[number].reduce(5, 0, numbers, 1.0, how, cluster.abort)


def test_a_server_of_an_earlier_membership_cannot_write(servers):
    cluster = servers(normal(3, 100))
    cluster.connect([10, 11])
    before = [cluster.buffers[number].memory.copy() for number in (10, 11)]
    stale = cluster.planes[12]
    for number in (10, 11):
        with pytest.raises(PlaneError) as caught:
            stale.write(number, (0, 4096), 0, b"note")
        assert caught.value.server == number
    assert list(cluster.planes[10].notes()) == []
    for number, memory in zip((10, 11), before, strict=True):
        assert (cluster.buffers[number].memory == memory).all()


@pytest.mark.slow
@pytest.mark.parametrize("how", ALL, ids=str)
def test_a_hundred_servers_get_one_sum(servers, how):
    changes = normal(100, 700)
    cluster = servers(changes, reductions=[how], timeout_s=WITHIN_S)
    results = cluster.reduce(how)
    assert all(each.tobytes() == results[0].tobytes() for each in results)
    if how.transfer == "float32" and how.robust == "none":
        np.testing.assert_allclose(results[0], changes.sum(0), rtol=1e-4, atol=1e-4)


def test_buffers_for_fewer_servers_are_refused():
    buffers = ExchangeBuffers.create(1000, [TOP_K], servers=2)
    exchange = ChangeExchange(buffers, MemoryPlane(buffers), 0)
    with pytest.raises(UsageError, match="up to 2 servers"):
        exchange.reduce(1, 0, [0, 1, 2], 1.0, TOP_K, threading.Event())
    buffers.close()
