import math
from dataclasses import replace

import pytest

from hogbatch.cluster.decisions import plan_text as text
from hogbatch.cluster.decisions.estimate import (
    ADD_SPEED,
    Task,
    merge_of,
    most_servers,
    most_with_efficiency,
    parameter_servers,
    parameters_of,
    predict,
)
from hogbatch.cluster.decisions.link import ServerLink

FAST = ServerLink(2e-5, 1.25e9)  # 10 Gbit/s
TASK = Task(parameters=1_000_000, rows=10_000_000, rows_per_second=100_000, merges_per_epoch=5)


def test_a_merge_of_two_servers_sends_one_model_each():
    merge = merge_of(TASK, 2, FAST)
    assert merge.sent == 4e6
    assert merge.seconds == pytest.approx(2 * 2e-5 + 4e6 / 1.25e9 + 2e6 / ADD_SPEED)


def test_the_ring_is_chosen_for_large_models_and_halving_for_small_ones():
    small = Task(1000, 10_000_000, 100_000, 5)
    assert merge_of(small, 100, FAST).cost.name == "halving"
    large = Task(10**9, 10_000_000, 100_000, 5)
    assert merge_of(large, 100, FAST).cost.name == "ring"


def test_the_interval_is_that_of_all_servers_together():
    assert TASK.seconds_between_merges(1) == 20.0
    assert TASK.seconds_between_merges(100) == pytest.approx(0.2)


def planned(servers, task=TASK):
    (found,) = predict(task, FAST, 0.1, [servers]).servers
    return found


def test_the_most_servers_are_the_last_that_fit():
    assert planned(100).share == pytest.approx(planned(100).merge.seconds / 0.2)
    most = predict(TASK, FAST, 0.1, []).most_servers
    assert planned(most).share <= 0.1 < planned(most + 1).share


def test_the_fewest_rows_between_merges_are_enough():
    found = planned(1000)
    assert found.share > 0.1
    rare = Task(TASK.parameters, TASK.rows, TASK.rows_per_second, TASK.rows / found.fewest_rows)
    assert planned(1000, rare).share == pytest.approx(0.1, rel=1e-3)


def test_the_most_servers_that_wait_are_the_last_with_the_efficiency():
    most = most_with_efficiency(TASK, FAST, 0.8)
    seconds = [merge_of(TASK, servers, FAST).seconds for servers in (most, most + 1)]
    found = [20.0 / (20.0 + n * each) for n, each in zip((most, most + 1), seconds, strict=True)]
    assert found[0] >= 0.8 > found[1]


def test_one_server_needs_no_merge():
    assert (planned(1).share, planned(1).merge.sent) == (0.0, 0.0)


def test_parameters_are_weights_and_biases():
    assert parameters_of([54, 512, 7]) == 54 * 512 + 512 + 512 * 7 + 7
    assert parameters_of([10, 1]) == 11


def test_all_numbers_of_servers_up_to_the_most_fit():
    most = most_servers(TASK, FAST, 0.1)
    shares = [planned(servers).share for servers in range(2, most + 2)]
    assert max(shares[:-1]) <= 0.1 < shares[-1]
    assert most < 256 and planned(256).share <= 0.1, "a power of two merges faster"


def test_a_merge_has_three_parts():
    merge = merge_of(TASK, 100, FAST)
    assert merge.waiting == pytest.approx(merge.cost.steps * 2e-5)
    assert merge.adding == pytest.approx(merge.cost.added * 4e6 / ADD_SPEED)
    assert merge.seconds == pytest.approx(merge.waiting + merge.adding + merge.sent / 1.25e9)


def test_the_share_is_possible_if_one_merge_per_epoch_is_rare_enough():
    for servers in (2, 100, 1000, 4000):
        found = planned(servers)
        once = planned(servers, replace(TASK, merges_per_epoch=1))
        assert found.possible == (once.share <= 0.1) == (found.fewest_rows <= TASK.rows)
        assert found.most_merges == pytest.approx(0.1 / once.share)
        assert found.epoch == pytest.approx(once.interval)
    plan = predict(TASK, FAST, 0.1, [])
    assert plan.most_servers < plan.most_servers_once < 4000
    assert planned(plan.most_servers_once).possible
    assert not planned(plan.most_servers_once + 1).possible


@pytest.mark.parametrize("servers", [2, 100, 4000])
def test_slower_servers_make_the_share_possible(servers):
    limit = planned(servers).most_rows_per_second
    for factor, possible in ((0.999, True), (1.001, False)):
        task = replace(TASK, rows_per_second=factor * limit)
        assert planned(servers, task).possible == possible


def test_parameter_servers_hide_the_transfers_of_two_models_per_server():
    moved = 2 * TASK.model_bytes * 100  # in the time between two merges
    assert parameter_servers(TASK, 100, FAST) == math.ceil(moved / (1.25e9 * 0.2))
    slow = ServerLink(2e-5, 1.25e8)
    assert parameter_servers(TASK, 100, slow) == math.ceil(moved / (1.25e8 * 0.2))


def conclusions(task, *servers):
    return "\n".join(text.lines(predict(task, FAST, 0.1, servers)))


def test_the_text_says_why_a_share_is_impossible():
    fast = replace(TASK, rows_per_second=1e6, rows=5_000_000)
    found = planned(100, fast)
    said = conclusions(fast, 2, 64, 100)
    assert "With 100 servers, merging cannot take at most 10 % of the time" in said
    assert "on all 5,000,000 rows in 50 ms" in said
    merge = found.merge
    assert f"A merge takes {text.duration(merge.seconds)}" in said
    assert f"{text.size(merge.sent)} that a server sends" in said
    assert f"{merge.cost.steps} steps" in said
    assert f"{found.fewest_rows:,} rows between two merges" in said
    assert f"{found.fewest_rows / 5e6:.3g} epochs" in said
    assert f"at most {found.most_rows_per_second:,.0f} rows/s" in said
    assert "cannot" not in conclusions(fast, 2)


def test_the_text_says_that_fewer_merges_are_enough():
    said = conclusions(replace(TASK, merges_per_epoch=100), 2, 100)
    assert "cannot" not in said and "can merge less often" in said
    assert "can merge less often" not in conclusions(replace(TASK, merges_per_epoch=1), 2)
