"""The times between merges."""

import math
from dataclasses import replace

import pytest

from hogbatch.coordinator.merge_pace import SECONDS_PER_PARAMETER, MergePace, MergeSettings

SETTINGS = MergeSettings(rows=1000, parameters=10, share=0.25, load=0.1, load_if_rare=0.2)


def test_the_pause_limits_the_part_of_the_time_and_that_of_the_threads():
    pace = MergePace()
    pace.end(seconds=1.0, busy_seconds=0.0, now=10.0)
    assert pace.earliest(SETTINGS, 1000) == 10.0 + 3.0  # a quarter of the time
    pace.end(seconds=1.0, busy_seconds=1.0, now=10.0)
    assert pace.earliest(SETTINGS, 2999) == 10.0 + 9.0  # 1 of 10 seconds
    assert pace.earliest(SETTINGS, 3000) == 10.0 + 4.0  # 1 of 5 seconds, as merges are rare


def test_merges_follow_the_measured_speed():
    pace = MergePace()
    pace.begin(100.0)
    assert pace.expected(SETTINGS, rows_per_second=500.0) == 102.0
    assert pace.expected(SETTINGS, rows_per_second=0.0) == math.inf  # unknown
    pace.end(seconds=1.0, busy_seconds=0.0, now=101.0)
    assert pace.expected(SETTINGS, rows_per_second=500.0) == 104.0  # after the pause
    assert pace.expected(SETTINGS, rows_per_second=50.0) == 120.0


def test_merges_take_more_of_the_threads_only_if_they_are_rare():
    pace = MergePace()
    pace.begin(9.0)
    pace.end(seconds=1.0, busy_seconds=1.0, now=10.0)  # 9 s later at the usual load, 4 s if rare
    assert pace.expected(SETTINGS, rows_per_second=2000.0) == 14.0  # rare: 10,000 rows since then
    assert pace.expected(SETTINGS, rows_per_second=500.0) == 9.0 + 3000 / 500.0
    assert pace.expected(SETTINGS, rows_per_second=300.0) == 19.0  # 3000 rows take longer


def test_the_pause_begins_again_when_training_goes_on():
    pace = MergePace()
    pace.end(seconds=1.0, busy_seconds=0.0, now=10.0)
    pace.train(50.0)  # after an evaluation
    assert pace.earliest(SETTINGS, 1000) == 50.0 + 3.0
    assert pace.expected(SETTINGS, rows_per_second=1e6) == 53.0


def test_the_first_merge_waits_as_long_as_after_one_of_the_expected_length():
    pace, large = MergePace(), replace(SETTINGS, parameters=10**7)
    pace.train(5.0)
    seconds = 10**7 * SECONDS_PER_PARAMETER
    assert pace.earliest(large, 1000) == pytest.approx(5.0 + 9 * seconds)  # a tenth of one thread
