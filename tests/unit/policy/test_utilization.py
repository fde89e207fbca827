import pytest

from hogbatch.policy.limits import peak_speed, utilization


def test_the_peak_is_that_of_the_fastest_batch_of_all_teams():
    profile = [(16, 0.01), (64, 0.02), (256, 0.1)]
    assert peak_speed(profile) == pytest.approx(3200.0)
    assert peak_speed(profile, teams=4) == pytest.approx(12_800.0)


def test_utilization_is_the_speed_over_the_peak():
    assert utilization(500, 2.0, 1000.0) == pytest.approx(0.25)
    assert utilization(0, 2.0, 1000.0) == 0.0


def test_there_is_none_without_a_peak_or_without_time():
    assert peak_speed((), 2) is None
    for seconds, peak in ((2.0, None), (0.0, 1000.0), (-1.0, 1000.0)):
        assert utilization(500, seconds, peak) is None
