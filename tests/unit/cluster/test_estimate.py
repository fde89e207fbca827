import pytest

from hogbatch.cluster.estimate import ADD_SPEED, Task, merge_of, most_with_efficiency, predict
from hogbatch.cluster.link import ServerLink

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
