import math
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from hogbatch.policy.throughput import (
    FIRST_BATCHES,
    FIRST_TIMEOUT_S,
    LEASES_PER_S,
    MIN_TIMEOUT_S,
    CombinedSpeed,
    LeaseSizing,
    SecondsPerRow,
    lease_rows,
    lease_timeout,
    rows_of_range,
    would_delay_epoch,
)
from tests.support.property_tests import max_examples

SPEEDS = st.one_of(st.just(math.nan), st.just(0.0), st.floats(0.0, 1e300))


USUAL = LeaseSizing(10, 1, 0.001, 0.5, remaining=1_000_000, fraction=1.0)


def test_a_short_lease_counts_less_than_a_long_one():
    speed = SecondsPerRow()
    speed.add(1.0, 1000)
    speed.add(0.1, 10)  # a GPU loses as much time to merges in a short lease
    assert speed.value == pytest.approx((0.7 * 1.0 + 0.1) / (0.7 * 1000 + 10))


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, 500),
        ({"batch_size": 64}, 448),  # whole batches
        ({"teams": 4}, 480),  # for every team
        ({"teams": 8, "batch_size": 100}, 800),  # never less than a batch for every team
        ({"batch_size": 4096}, 4096),  # never less than a batch
        ({"seconds_per_row": math.nan, "teams": 2}, 10 * 2 * FIRST_BATCHES),
        ({"seconds_per_row": 0.0}, 10 * FIRST_BATCHES),
        ({"remaining": 600}, 500),  # nobody waits for a thread that trains alone
        ({"remaining": 400}, 400),
        ({"remaining": 600, "teams": 2}, 300),  # half of what remains
        ({"remaining": 600, "fraction": 0.5}, 150),
        ({"remaining": 600, "fraction": 0.25}, 70),
        ({"remaining": 12}, 10),
        ({"remaining": 3}, 3),
        ({"seconds_per_row": 5e-324}, 1_000_000),  # all of it takes less than a message
        ({"workers": 400}, 500),  # 800 leases a second, 0.5 s each
        ({"workers": 800}, 1000),
        ({"workers": 801}, 1010),
        ({"workers": 800, "turn": 0.0}, 750),
        ({"workers": 800, "turn": 1.0}, 1250),
        ({"workers": 8000, "fraction": 1e-4}, 1000),  # 10 s of work, but for the end of the epoch
        ({"workers": 8000, "fraction": 1e-4, "remaining": 2000}, 1000),
    ],
)
def test_a_lease_has_the_target_duration_in_whole_batches(changes, rows):
    assert lease_rows(replace(USUAL, **changes)) == rows


@max_examples(100)
@given(
    batch_size=st.integers(1, 10**5),
    teams=st.integers(1, 64),
    seconds_per_row=SPEEDS,
    target_seconds=st.floats(1e-3, 10.0),
    remaining=st.integers(1, 10**9),
    fraction=st.floats(0.0, 1.0),
    workers=st.integers(1, 10**5),
)
def test_a_lease_has_at_least_a_row_and_at_most_all_in_whole_batches(
    batch_size, teams, seconds_per_row, target_seconds, remaining, fraction, workers
):
    settings = (batch_size, teams, seconds_per_row, target_seconds, remaining, fraction)
    rows = lease_rows(LeaseSizing(*settings, workers=workers))
    assert 1 <= rows <= remaining
    batches, rest = divmod(rows, batch_size)
    assert rest == 0 or rows == remaining
    assert batches <= teams or batches % teams == 0 or rows == remaining


@pytest.mark.parametrize(
    ("wanted", "available", "rows"),
    [
        (640, 10_000, 640),
        (640, 640, 640),
        (640, 200, 128),  # the range ends before; the rest is half of a batch or more
        (640, 160, 128),
        (640, 641, 576),  # the rest of one row
        (576, 641, 576),
        (640, 65, 33),  # is divided with a batch
        (640, 33, 33),
        (640, 1, 1),
        (3, 3, 3),
    ],
)
def test_a_range_ends_with_batches_of_similar_size(wanted, available, rows):
    assert rows_of_range(wanted, 64, available) == rows


@max_examples(100)
@given(st.data(), st.integers(1, 100), st.integers(1, 1000))
def test_no_batch_is_smaller_than_half_of_one_unless_the_range_is(data, batch, available):
    whole_range = available
    while available:
        rows = rows_of_range(batch * data.draw(st.integers(1, 20)), batch, available)
        assert 1 <= rows <= available
        assert rows % batch == 0 or rows < batch  # so all of its batches have one learning rate
        assert 2 * rows >= min(batch, 2 * whole_range)
        available -= rows


@max_examples(50)
@given(workers=st.integers(1, 100_000), seconds_per_row=st.floats(1e-9, 1e-3))
def test_however_many_workers_there_are_they_do_not_ask_more_often(workers, seconds_per_row):
    asked = {"seconds_per_row": seconds_per_row, "remaining": 10**15, "workers": workers}
    rows = lease_rows(replace(USUAL, **asked))
    assert workers / (rows * seconds_per_row) <= 1.001 * LEASES_PER_S


def joint(speeds):
    joint = CombinedSpeed()
    for worker, seconds_per_row in enumerate(speeds):
        joint.put(worker, seconds_per_row)
    return joint


@max_examples(50)
@given(st.lists(st.tuples(st.integers(0, 4), SPEEDS), max_size=50))
def test_the_combined_speed_does_not_drift(changes):
    kept = joint([])
    for worker, seconds_per_row in changes:
        kept.put(worker, seconds_per_row)
    last = dict(changes)
    computed = joint([last.get(worker, math.nan) for worker in range(5)])
    assert [kept.of_others(w) for w in range(6)] == [computed.of_others(w) for w in range(6)]
    assert len(kept) == sum(value > 0 for value in last.values())


def test_a_fraction_is_proportional_to_the_speed():
    speeds = joint([0.1, 0.3, math.nan, 0.0])
    assert len(speeds) == 2
    assert speeds.fraction(0) == pytest.approx(0.75)
    assert speeds.of_others(0) == pytest.approx(1 / 0.3)
    assert speeds.of_others(2) == pytest.approx(1 / 0.3 + 10)
    speeds.drop(1)
    assert (speeds.fraction(0), speeds.of_others(0)) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("faster", "remaining", "expected"),
    [
        ([10_000], 1000, True),  # 0.4 s for what the other does in 0.1 s
        ([10_000], 10_000, False),
        ([10_000, 10_000], 7000, True),  # together they do 8000
        ([10_000, 10_000], 8000, False),
        ([], 1, False),  # the quickest is never refused
    ],
)
def test_a_worker_that_would_delay_the_epoch_leaves_the_rest_to_the_others(
    faster, remaining, expected
):
    assert would_delay_epoch(0.4, faster, remaining) is expected


@pytest.mark.parametrize(
    ("expected", "seconds"),
    [
        (0.0, MIN_TIMEOUT_S),
        (MIN_TIMEOUT_S / 8, MIN_TIMEOUT_S),
        (MIN_TIMEOUT_S, 8 * MIN_TIMEOUT_S),
        (math.nan, FIRST_TIMEOUT_S),
    ],
)
def test_a_lease_may_take_eight_times_as_long_as_expected(expected, seconds):
    assert lease_timeout(expected) == seconds
