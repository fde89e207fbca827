"""The number of batches between two merges, from the times of intervals."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from hogbatch.store.merge import MERGING_FRACTION, batches_between_merges
from hogbatch.workers.compute.merge_interval import (
    ALONE,
    MAX_FACTOR,
    WINDOW,
    IntervalTimes,
    MergeCost,
    MergeInterval,
)
from tests.support.property_tests import max_examples

SIZE, BATCH = 64, 1e-3  # rows and seconds of a batch, as measured before training
COST = MergeCost(blocking=2e-4, background=2e-3)  # 2 batches
ENOUGH = 60  # observations, to reach any value within the limits of their change

seconds = st.floats(0, 1e3)


def make(chosen=0, cost=COST):
    return MergeInterval(chosen, lambda rows: BATCH * rows / SIZE, cost)


def times(batches=4, batch=BATCH, cost=COST, *, size=SIZE):
    return IntervalTimes(size, batches * size, batches * batch, MergeCost(*cost))


def after(*observations, chosen=0):
    interval = make(chosen)
    for each in observations:
        interval.observe(each)
    return interval


def test_the_first_intervals_follow_from_the_measurements_before_training():
    assert make().batches(SIZE) == batches_between_merges(BATCH, *COST) == 2
    assert make().batches(2 * SIZE) == 1 and make().batches(SIZE // 8) == 16


@pytest.mark.parametrize(
    ("observed", "batches"),
    [
        ({"cost": (1e-3, 2e-3)}, 10),
        ({"cost": (2e-4, 30e-3)}, 30),
        ({"batch": 1e-4}, 20),
        ({"batch": 1e-2}, 1),
        ({"batch": 1e-4, "cost": (1e-6, 1e-6)}, 1),
    ],
)
def test_later_intervals_follow_from_those_observed(observed, batches):
    interval = after(*[times(**observed)] * ENOUGH)
    assert interval.batches(SIZE) == batches
    blocking, background = observed.get("cost", COST)
    training = batches * observed.get("batch", BATCH) * (1 + 1e-9)
    assert blocking <= MERGING_FRACTION * training and background <= training


def test_a_worker_that_trains_alone_merges_less_often():
    alone = times()._replace(alone=True)
    assert after(alone).batches(SIZE) == 2 * ALONE
    assert after(alone, times()).batches(SIZE) == 2
    assert after(alone, chosen=3).batches(SIZE) == 3 and after(alone).batches(SIZE, 5) == 5


def test_a_few_outliers_change_nothing():
    outliers = [times(cost=(1.0, 1.0)), times(batch=1e-7, cost=(0.0, 0.0))]
    for start in range(WINDOW):
        interval = after(*[times()] * start)
        for each in (*outliers, times(), times(), times()):
            interval.observe(each)
            assert interval.batches(SIZE) == 2


def test_a_sudden_change_is_followed_in_steps():
    interval, counts = make(), []
    for _ in range(ENOUGH):
        interval.observe(times(cost=(1.0, 1.0)))
        counts.append(interval.batches(SIZE))
    assert counts[-1] == 10_000
    for earlier, later in pairwise(counts):
        assert earlier <= later <= MAX_FACTOR * earlier + 1
    assert counts[WINDOW // 2 + 1] > 2  # but the first step is made after half of the window
    chosen = after(*[times(cost=(1.0, 1.0))] * ENOUGH, chosen=3)
    assert chosen.batches(SIZE) == chosen.batches(1) == 3


def test_batch_sizes_have_their_own_estimates_and_the_costs_observed_last():
    interval = after(*[times(batch=1e-4)] * ENOUGH)
    assert (interval.batches(SIZE), interval.batches(2 * SIZE)) == (20, 1)  # 2 ms, as measured
    interval = after(*[times(cost=(1e-3, 2e-3))] * ENOUGH)
    assert interval.batches(2 * SIZE) == 5
    interval.observe(times(size=2 * SIZE, cost=(1e-3, 2e-3)))
    assert interval.batches(2 * SIZE) == 5


@pytest.mark.parametrize(
    ("rows", "batch_seconds"),
    [
        (4 * SIZE, 0.25),
        (SIZE - 1, None),
        (3 * SIZE + 1, None),
        (7 * SIZE + 1, 0.125),  # one of eight batches is incomplete
    ],
)
def test_incomplete_batches_are_used_only_where_they_hardly_matter(rows, batch_seconds):
    observed = IntervalTimes(SIZE, rows, 1.0, COST)
    assert observed.batch_seconds == batch_seconds
    assert after(*[observed] * ENOUGH).batches(SIZE) == (2 if batch_seconds is None else 1)


@max_examples(50)
@given(st.lists(st.tuples(seconds, seconds, seconds), max_size=20), st.tuples(seconds, seconds))
def test_any_times_give_a_number_of_batches(observed, first):
    interval = make(cost=MergeCost(*first))
    for batch, *cost in observed:
        interval.observe(times(batch=batch, cost=cost))
        assert 1 <= interval.batches(SIZE) < 10**12
