import math

import pytest
from hypothesis import given, settings, strategies as st

from hogbatch.policy.base import WorkerView
from hogbatch.policy.throughput import (
    FIRST_BATCHES,
    SMOOTHING,
    LeaseWish,
    SecondsPerRow,
    lease_rows,
    share_of_speed,
    useful_limits,
    would_hold_up,
)

SPEEDS = st.one_of(st.just(math.nan), st.just(0.0), st.floats(0.0, 1e300))


def wish(**changes):
    fields = {
        "batch_size": 10,
        "threads": 1,
        "seconds_per_row": 0.001,
        "target_seconds": 0.5,
        "remaining": 1_000_000,
        "share": 1.0,
    }
    return LeaseWish(**{**fields, **changes})


def test_the_speed_is_unknown_before_the_first_lease():
    assert math.isnan(SecondsPerRow().value)


def test_the_first_lease_counts_in_full():
    speed = SecondsPerRow()
    speed.add(3.0, 100)
    assert speed.value == pytest.approx(0.03)


def test_the_average_weighs_newer_leases_more():
    speed = SecondsPerRow()
    measured = [0.1, 0.4, 0.2]
    for seconds in measured:
        speed.add(seconds, 1)
    weights = [SMOOTHING * (1 - SMOOTHING) ** age for age in (2, 1, 0)]
    total = sum(weight * seconds for weight, seconds in zip(weights, measured, strict=True))
    assert speed.value == pytest.approx(total / sum(weights))


@settings(deadline=None, max_examples=50)
@given(st.floats(1e-9, 1e3), st.lists(st.integers(1, 10**6), min_size=1, max_size=20))
def test_a_steady_worker_has_its_speed_from_the_first_lease_on(seconds_per_row, leases):
    speed = SecondsPerRow()
    for rows in leases:
        speed.add(seconds_per_row * rows, rows)
        assert speed.value == pytest.approx(seconds_per_row)


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, 500),
        ({"batch_size": 64}, 448),  # whole batches
        ({"threads": 4}, 480),  # for every thread
        ({"threads": 8, "batch_size": 100}, 800),  # never less than a batch for every thread
        ({"batch_size": 4096}, 4096),  # never less than a batch
        ({"seconds_per_row": math.nan, "threads": 2}, 10 * 2 * FIRST_BATCHES),
        ({"seconds_per_row": 0.0}, 10 * FIRST_BATCHES),
        ({"remaining": 600}, 300),  # half of what remains
        ({"remaining": 600, "share": 0.25}, 70),
        ({"remaining": 12}, 10),
        ({"remaining": 3}, 3),
        ({"seconds_per_row": 5e-324}, 500_000),
    ],
)
def test_a_lease_is_the_time_asked_for_in_whole_batches(changes, rows):
    assert lease_rows(wish(**changes)) == rows


@settings(deadline=None, max_examples=300)
@given(
    batch_size=st.integers(1, 10**5),
    threads=st.integers(1, 64),
    seconds_per_row=SPEEDS,
    target_seconds=st.floats(1e-3, 10.0),
    remaining=st.integers(1, 10**9),
    own=SPEEDS,
    others=st.lists(SPEEDS, max_size=4),
)
def test_a_lease_has_a_row_and_no_more_than_there_are_in_whole_batches(
    batch_size, threads, seconds_per_row, target_seconds, remaining, own, others
):
    share = share_of_speed(own, others)
    rows = lease_rows(
        LeaseWish(batch_size, threads, seconds_per_row, target_seconds, remaining, share)
    )
    assert 1 <= rows <= remaining
    batches, rest = divmod(rows, batch_size)
    assert rest == 0 or rows == remaining
    assert batches <= threads or batches % threads == 0 or rows == remaining


@settings(deadline=None, max_examples=50)
@given(own=SPEEDS, others=st.lists(SPEEDS, max_size=5))
def test_a_share_lies_between_nothing_and_all(own, others):
    assert 0.0 <= share_of_speed(own, others) <= 1.0


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=8))
def test_all_shares_together_are_all(speeds):
    shares = [
        share_of_speed(own, speeds[:place] + speeds[place + 1 :])
        for place, own in enumerate(speeds)
    ]
    assert sum(shares) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("own", "others", "share"),
    [
        (0.1, [], 1.0),
        (0.1, [0.1], 0.5),
        (0.1, [0.3], 0.75),
        (math.nan, [0.3, 0.1], 1 / 3),
        (0.1, [math.nan], 0.5),
        (0.0, [0.1], 0.5),
    ],
)
def test_a_share_follows_the_speed_once_all_are_known(own, others, share):
    assert share_of_speed(own, others) == pytest.approx(share)


def test_useful_batches_reach_from_half_of_the_peak_to_nine_tenths():
    profile = [(64, 0.010), (256, 0.011), (1024, 0.013), (4096, 0.038), (8192, 0.075)]
    assert useful_limits(profile) == (1024, 4096)  # 109 227 rows/s at the peak
    assert useful_limits(profile[::-1]) == (1024, 4096)


def test_one_measured_batch_is_both_limits():
    assert useful_limits([(128, 0.5)]) == (128, 128)


def test_what_was_not_measured_is_left_out():
    assert useful_limits([(0, 0.1), (64, 0.0), (128, 0.1)]) == (128, 128)


@pytest.mark.parametrize("profile", [[], [(0, 1.0)], [(64, 0.0)]])
def test_limits_need_a_measurement(profile):
    with pytest.raises(ValueError, match="expected measured batches"):
        useful_limits(profile)


def view(batch_size, seconds_per_row):
    return WorkerView("cpu", 1, 1, 9999, batch_size, 0, seconds_per_row)


@pytest.mark.parametrize(
    ("own", "others", "remaining", "expected"),
    [
        (view(4096, 1e-4), [view(1, 1e-4)], 1000, True),  # 0.4 s for what the other does in 0.1 s
        (view(4096, 1e-4), [view(1, 1e-4)], 10_000, False),
        (view(1, 1e-4), [view(4096, 1e-4)], 1, False),  # the quickest batch is never refused
        (view(4096, 1e-4), [], 1, False),  # nor who is alone
        (view(4096, 1e-4), [view(1, math.nan)], 1, False),
        (view(4096, 1e-4), [view(1, 0.0)], 1, False),
    ],
)
def test_who_would_be_waited_for_leaves_the_rest_to_the_others(own, others, remaining, expected):
    assert would_hold_up(own, others, remaining) is expected
