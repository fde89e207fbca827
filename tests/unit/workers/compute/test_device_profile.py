import math

import pytest

from hogbatch.workers.compute.device_profile import (
    MEASURED_INTERVALS,
    first_merge_interval,
    nearest_seconds,
    touches_few_rows,
)
from hogbatch.workers.compute.merge_interval import MergeCost
from tests.support.assignments import examples

PROFILE = (16, 0.1), (64, 0.2)


def test_seconds_are_estimated_from_the_nearest_batch_size():
    assert nearest_seconds(PROFILE, 1) == nearest_seconds(PROFILE, 16) == 0.1
    assert nearest_seconds(PROFILE, 32) == pytest.approx(0.2)
    assert nearest_seconds(PROFILE, 60) == 0.2
    assert nearest_seconds(PROFILE, 640) == pytest.approx(2.0)
    assert math.isfinite(nearest_seconds(PROFILE, 2**40))


def test_few_rows_are_touched_by_small_batches():
    rare = examples(200, sparse=True, features=100, stored=0.01)
    assert touches_few_rows(rare, 10)
    assert not touches_few_rows(rare, 200)


def test_an_exchange_of_everything_is_measured_once():
    asked = []

    def cost(rows):
        asked.append(rows)
        return MergeCost(0.05, 1.0)

    interval = first_merge_interval(0, PROFILE, 1000, cost, by_rows=False)
    assert asked == [64]
    assert first_merge_interval(3, PROFILE, 1000, cost, by_rows=True).batches(64) == 3  # chosen
    assert asked == [64, 3 * 64]
    assert interval.batches(64) == 5  # a background of 1.0 s, in batches of 0.2 s


def test_touched_rows_are_measured_until_the_interval_fits():
    asked = []

    def cost(rows):
        asked.append(rows)
        return MergeCost(0.001 * rows, 0.0)

    first_merge_interval(0, PROFILE, 10_000, cost, by_rows=True)
    assert 1 < len(asked) <= MEASURED_INTERVALS and asked == sorted(asked)
    assert asked[0] == 64
