import math
from dataclasses import replace

import pytest

from hogbatch.cluster.decisions import plan_text as text
from hogbatch.cluster.decisions.estimate import (
    ADD_SPEED,
    Task,
    merge_of,
    most_with_efficiency,
    parameter_servers,
    parameters_of,
    predict,
)
from hogbatch.cluster.decisions.link import ServerLink

FAST = ServerLink(2e-5, 1.25e9)  # 10 Gbit/s
TASK = Task(parameters=1_000_000, rows=10_000_000, rows_per_second=100_000, merges_per_epoch=5)


def planned(servers, task=TASK):
    (found,) = predict(task, FAST, 0.1, [servers]).servers
    return found


def test_a_merge_of_two_servers_sends_one_model_each():
    merge = merge_of(TASK, 2, FAST)
    assert merge.sent == 4e6
    parts = merge.waiting, merge.sending, merge.adding
    assert parts == pytest.approx((2 * 2e-5, 4e6 / 1.25e9, 2e6 / ADD_SPEED))
    assert merge.seconds == pytest.approx(sum(parts))
    assert (planned(1).share, planned(1).merge.sent) == (0.0, 0.0)


def test_the_ring_is_chosen_for_large_models_and_halving_for_small_ones():
    assert merge_of(replace(TASK, parameters=1000), 100, FAST).cost.name == "halving"
    assert merge_of(replace(TASK, parameters=10**9), 100, FAST).cost.name == "ring"


def test_the_interval_is_that_of_all_servers_together():
    assert parameters_of([54, 512, 7]) == 54 * 512 + 512 + 512 * 7 + 7
    assert TASK.seconds_between_merges(1) == 20.0
    assert TASK.seconds_between_merges(100) == pytest.approx(0.2)
    assert planned(100).share == pytest.approx(planned(100).merge.seconds / 0.2)


def test_the_most_servers_are_the_last_up_to_which_all_fit():
    most = predict(TASK, FAST, 0.1, []).most_servers
    shares = [planned(servers).share for servers in (2, most // 2, most - 1, most, most + 1)]
    assert max(shares[:-1]) <= 0.1 < shares[-1]
    assert most < 256 and planned(256).share <= 0.1, "a power of two merges faster"


def test_the_fewest_rows_between_merges_are_enough():
    found = planned(1000)
    assert found.share > 0.1
    rare = replace(TASK, merges_per_epoch=TASK.rows / found.fewest_rows)
    assert planned(1000, rare).share == pytest.approx(0.1, rel=1e-3)


def test_the_most_servers_that_wait_are_the_last_with_the_efficiency():
    most = most_with_efficiency(TASK, FAST, 0.8)
    now, more = (20.0 / (20.0 + n * merge_of(TASK, n, FAST).seconds) for n in (most, most + 1))
    assert now >= 0.8 > more


def test_the_share_is_possible_if_one_merge_per_epoch_is_rare_enough():
    for servers in (2, 100, 4000):
        found = planned(servers)
        once = planned(servers, replace(TASK, merges_per_epoch=1))
        assert found.possible == (once.share <= 0.1) == (found.fewest_rows <= TASK.rows)
        assert found.most_merges == pytest.approx(0.1 / once.share)
        assert found.epoch == pytest.approx(once.interval)
        for factor, possible in ((0.999, True), (1.001, False)):
            slower = replace(TASK, rows_per_second=factor * found.most_rows_per_second)
            assert planned(servers, slower).possible == possible
    most = predict(TASK, FAST, 0.1, []).most_servers_once
    assert planned(most).possible and not planned(most + 1).possible


def test_parameter_servers_hide_the_transfers_of_two_models_per_server():
    moved = 2 * TASK.model_bytes * 100  # in the time between two merges
    assert parameter_servers(TASK, 100, FAST) == math.ceil(moved / (1.25e9 * 0.2))


def conclusions(task, *servers):
    return "\n".join(text.lines(predict(task, FAST, 0.1, servers)))


def test_the_text_says_why_a_share_is_impossible_or_how_it_is_possible():
    fast = replace(TASK, rows_per_second=1e6, rows=5_000_000)
    found = planned(100, fast)
    said = conclusions(fast, 2, 64, 100)
    for expected in (
        "With 100 servers, merging cannot take at most 10 % of the time",
        "on all 5,000,000 rows in 50 ms",
        f"A merge takes {text.duration(found.merge.seconds)}",
        f"{text.size(found.merge.sent)} that a server sends",
        f"{found.merge.cost.steps} steps",
        f"{found.fewest_rows:,} rows between two merges",
        f"at most {found.most_rows_per_second:,.0f} rows/s",
    ):
        assert expected in said
    assert "cannot" not in conclusions(fast, 2)
    said = conclusions(replace(TASK, merges_per_epoch=100), 2, 100)
    assert "cannot" not in said and "can merge less often" in said
    assert "can merge less often" not in conclusions(replace(TASK, merges_per_epoch=1), 2)
