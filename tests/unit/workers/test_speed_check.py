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


@pytest.mark.parametrize("sign", [1, -1])
def test_a_difference_by_more_than_a_quarter_is_found(sign):
    seconds = 0.002 * (1 + sign * (MAX_DIFFERENCE + 0.01))
    (one,) = found(*[times(batch=seconds)] * ENOUGH_BATCHES)
    assert one == SpeedDifference(64, pytest.approx(seconds), 0.002)
    seconds = 0.002 * (1 + sign * (MAX_DIFFERENCE - 0.01))
    assert found(*[times(batch=seconds)] * 10 * ENOUGH_BATCHES) == []


@pytest.mark.parametrize(
    "ignored",
    [
        [times(batch=0.004)] * (ENOUGH_BATCHES - 1),
        [times(batch=0.004, batches=100)] * (ENOUGH_INTERVALS - 1),
        [times(1024, batch=0.8)] * (ENOUGH_INTERVALS - 1),
        [times(batch=5.0)] * (ENOUGH_INTERVALS // 2) + [times()] * ENOUGH_INTERVALS,
        [times(batch=5.0)] * (ENOUGH_INTERVALS // 2) + [times()] * 10 * ENOUGH_BATCHES,
        [times(17, batch=9.0)] * 100,  # a size that was not measured
        [times(64, batch=9.0, rows=63)] * 100,  # incomplete
    ],
    ids=["few", "few intervals", "few slow", "stalls", "stalls later", "size", "incomplete"],
)
def test_few_batches_outliers_and_incomplete_batches_are_ignored(ignored):
    assert found(*ignored) == []


def test_a_second_of_few_slow_batches_is_enough():
    assert len(found(*[times(1024, batch=0.8)] * ENOUGH_INTERVALS)) == 1


def test_batch_sizes_are_not_mixed():
    halves = [times(16, batch=0.002), times(64, batch=0.002)] * (ENOUGH_BATCHES - 1)
    assert found(*halves) == []
    (one,) = found(*halves, times(16, batch=0.002))
    assert one.rows == 16
