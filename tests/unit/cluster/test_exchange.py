"""Merges between servers that are threads of this process."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

import hogbatch.cluster.sums as sums
from benchmarks.common.job import WITHIN_S
from hogbatch.cluster import attempt
from hogbatch.cluster.attempt import MergeAborted
from hogbatch.cluster.planes.base import PlaneError
from tests.support.merging_servers import Servers
from tests.support.pairs import pairs

RING, HALVING = ("ring", "float32", "none"), ("halving", "float32", "none")
BFLOAT16, TOP_K = ("ring", "bfloat16", "none"), ("ring", "top-k", "none")
MEDIAN = ("ring", "float32", "median")
COMPRESSED = [BFLOAT16, TOP_K, MEDIAN]
ALL = [RING, HALVING, *COMPRESSED]


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

    def start(*arguments, **settings):
        started.append(Servers(*arguments, **settings))
        return started[-1]

    yield start
    for each in started:
        each.close()


def same_bits(results):
    assert len({each.tobytes() for each in results}) == 1
    return results[0]


@pairs(how=ALL, count=[1, 2, 3, 4, 5], size=[1, 7, 3000])
def test_all_servers_get_the_same_bits(servers, how, count, size):
    changes, weights = normal(count, size), np.arange(1, count + 1) / 4
    cluster = servers(changes, how)
    total = same_bits(cluster.reduce(weights=weights))
    for buffers, change in zip(cluster.buffers.values(), changes, strict=True):
        assert (buffers.change == change).all()
    if how in (RING, HALVING, BFLOAT16):
        tolerance = 0.02 if how is BFLOAT16 else 1e-5
        np.testing.assert_allclose(total, weights @ changes, rtol=tolerance, atol=tolerance)


def test_one_server_alone_does_not_wait_for_what_it_sent_to_a_lost_one(servers, monkeypatch):
    cluster = servers(np.ones((1, 10)), RING)

    def fail():
        raise PlaneError(3, "is lost")

    monkeypatch.setattr(cluster.planes[10], "finish", fail)
    assert (cluster.reduce()[0] == 1.0).all()


@pairs(how=COMPRESSED, count=[1, 2, 3])
def test_what_was_not_sent_is_sent_later(servers, how, count):
    size = 2000
    cluster = servers(np.zeros((count, size)), how)
    wanted, total = np.zeros(size), np.zeros(size)
    same = normal(1, size, 9)[0]  # of all servers, so that their median is their mean
    for merge in range(60):
        changes = np.tile(same, (count, 1)) + (how is not MEDIAN) * normal(count, size, merge)
        cluster.change(changes)
        total += same_bits(cluster.reduce(merge=merge))
        wanted += changes.sum(0)
        cluster.commit()
    left = sum(each.residual.astype(float) for each in cluster.buffers.values())
    np.testing.assert_allclose(total + left, wanted, atol=2e-2)
    assert np.linalg.norm(total) > 0.5 * np.linalg.norm(wanted)


@pytest.mark.parametrize("how", COMPRESSED)
def test_residuals_change_only_when_a_merge_counts_and_stay_finite(servers, how):
    cluster = servers(normal(3, 1000), how)
    cluster.reduce(merge=1)
    cluster.commit()
    first = same_bits(cluster.reduce(merge=2))
    assert (first == same_bits(cluster.reduce(merge=2, attempt=1))).all()
    cluster.buffers[11].change[::7], cluster.buffers[12].change[3] = np.nan, np.inf
    same_bits(cluster.reduce(merge=3))
    cluster.commit()
    assert all(np.isfinite(each.residual).all() for each in cluster.buffers.values())


def test_garbage_of_two_servers_of_five_is_outvoted(servers):
    changes = normal(1, 4000) + 0.3 * normal(5, 4000, 1)
    honest = changes[[0, 2, 4]].mean(0)
    changes[1], changes[3] = 1e15, np.nan
    total = same_bits(servers(changes, MEDIAN).reduce(weights=[0.2] * 5)) / 0.8
    merged = np.flatnonzero(total)  # a tenth of the blocks
    assert len(merged) >= 400
    error = np.linalg.norm((total - honest)[merged])
    assert error < 0.3 * np.linalg.norm(honest[merged])


def test_messages_of_later_attempts_are_kept_and_those_of_earlier_ones_dropped():
    arrived = [(11, attempt._NOTE.pack(1, number, 0, 0)) for number in (0, 1, 2)]
    mailbox = attempt.Mailbox(SimpleNamespace(notes=lambda: arrived))
    mailbox.read()
    message = attempt.MessageKey(11, 0, 0)
    for number, kept in ((1, {message}), (0, set()), (2, {message})):
        assert mailbox.arrived((1, number)) == kept


def test_a_merge_can_be_aborted(servers):
    cluster = servers(normal(2, 100), RING)
    with ThreadPoolExecutor(1) as pool:
        merge = pool.submit(cluster.start, 10, [10, 11])
        deadline = time.monotonic() + WITHIN_S
        while cluster.buffers[11].sum[0] == 0.0 and time.monotonic() < deadline:
            time.sleep(0.001)  # until the other has begun
        cluster.abort.set()
        with pytest.raises(MergeAborted, match="attempt 0 of merge 1"):
            merge.result(WITHIN_S)


@pytest.mark.parametrize("how", ALL)
def test_survivors_repeat_a_merge_without_a_lost_server(servers, how):
    changes = normal(4, 1000)
    cluster = servers(changes, how, timeout_s=0.2)
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
        cluster.exchanges[number]._timeout_s = WITHIN_S
    cluster.connect(survivors)
    total = same_bits(cluster.reduce(survivors, merge=5, attempt=1))
    assert (total == same_bits(servers(changes[:3], how).reduce())).all()
