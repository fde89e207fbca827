import pytest

from hogbatch.policy.limits import smallest_cpu_batch, useful_limits


def test_batches_that_are_too_large_to_be_useful_do_not_count():
    profile = [(64, 1.0), (128, 1.0), (256, 1.0), (512, 1.0), (1024, 1.0)]
    assert useful_limits(profile) == (512, 1024)
    assert useful_limits(profile, largest=512) == (256, 512)
    assert useful_limits(profile, largest=32) == (512, 1024)


def test_useful_batches_reach_from_half_of_the_peak_to_nine_tenths():
    profile = [(64, 0.010), (256, 0.011), (1024, 0.013), (4096, 0.038), (8192, 0.075)]
    assert useful_limits(profile) == (1024, 4096)  # 109 227 rows/s at the peak
    assert useful_limits(profile[::-1]) == (1024, 4096)
    assert useful_limits([(128, 0.5)]) == (128, 128)


def test_the_lower_limit_follows_the_minimum_utilization():
    profile = [(64, 0.064), (128, 0.09), (256, 0.12), (512, 0.17), (1024, 0.3)]  # 1.0 to 3.4
    assert useful_limits(profile, 0.25) == (64, 1024)
    assert useful_limits(profile, 0.6) == (256, 1024)
    assert useful_limits(profile, 1.0) == (1024, 1024)


@pytest.mark.parametrize(
    ("utilization", "smallest"), [(0.1, 1), (0.3, 4), (0.5, 16), (0.9, 16), (0.98, 64), (0.0, 1)]
)
def test_the_smallest_batch_of_a_cpu_follows_the_minimum_utilization(utilization, smallest):
    profile = [(64, 0.064), (16, 0.0165), (4, 0.0092), (1, 0.0075)]  # 1000 to 133 rows/s
    assert smallest_cpu_batch(profile, utilization) == smallest
    assert smallest_cpu_batch(profile[:2], 0.0) == 1, "also if a single row was not measured"
