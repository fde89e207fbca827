"""The comparison of training with the measurements before it."""

import pytest

from hogbatch.workers.compute.merge_interval import IntervalTimes, MergeCost
from hogbatch.workers.speed_check import (
    ENOUGH_BATCHES,
    ENOUGH_INTERVALS,
    MAX_DIFFERENCE,
    SpeedCheck,
    SpeedDifference,
)

MEASURED = {16: 0.001, 64: 0.002, 1024: 0.4}


def times(size=64, batches=1, batch=0.002, rows=None):
    rows = size * batches if rows is None else rows
    return IntervalTimes(size, rows, batches * batch, MergeCost(0.0, 0.0))


def found(*observed, check=None):
    """The differences that are found."""
    check = check or SpeedCheck(tuple(MEASURED.items()))
    return [one for each in observed if (one := check.observe(each)) is not None]


@pytest.mark.parametrize("factor", [1 + MAX_DIFFERENCE + 0.01, 2.0, 1 - MAX_DIFFERENCE - 0.01])
def test_a_difference_by_more_than_a_quarter_is_found(factor):
    (one,) = found(*[times(batch=0.002 * factor)] * ENOUGH_BATCHES)
    assert one == SpeedDifference(64, pytest.approx(0.002 * factor), 0.002)


@pytest.mark.parametrize("factor", [1 + MAX_DIFFERENCE - 0.01, 1.0, 1 - MAX_DIFFERENCE + 0.01])
def test_a_smaller_difference_is_ignored(factor):
    assert found(*[times(batch=0.002 * factor)] * 10 * ENOUGH_BATCHES) == []


def test_a_difference_is_found_only_after_enough_batches():
    assert found(*[times(batch=0.004)] * (ENOUGH_BATCHES - 1)) == []
    assert found(*[times(batch=0.004, batches=100)] * (ENOUGH_INTERVALS - 1)) == []


def test_a_second_of_few_slow_batches_is_enough():
    assert found(*[times(1024, batch=0.8)] * (ENOUGH_INTERVALS - 1)) == []
    assert len(found(*[times(1024, batch=0.8)] * ENOUGH_INTERVALS)) == 1


def test_slow_outliers_are_ignored():
    stalls = [times(batch=5.0)] * (ENOUGH_INTERVALS // 2)
    assert found(*stalls, *[times()] * ENOUGH_INTERVALS) == []
    assert found(*stalls, *[times()] * 10 * ENOUGH_BATCHES) == []


def test_batch_sizes_are_not_mixed():
    halves = [times(16, batch=0.002), times(64, batch=0.002)] * (ENOUGH_BATCHES - 1)
    assert found(*halves) == []
    (one,) = found(*halves, times(16, batch=0.002))
    assert one.rows == 16


def test_sizes_that_were_not_measured_and_incomplete_batches_are_ignored():
    assert found(*[times(17, batch=9.0)] * 100) == []
    assert found(*[times(64, batch=9.0, rows=63)] * 100) == []


def test_a_device_that_becomes_slower_later_is_found():
    check = SpeedCheck(tuple(MEASURED.items()))
    assert found(*[times()] * 100 * ENOUGH_BATCHES, check=check) == []
    assert len(found(*[times(batch=0.004)] * 2 * ENOUGH_BATCHES, check=check)) >= 1
