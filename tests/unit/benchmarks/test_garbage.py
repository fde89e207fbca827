import pytest

from benchmarks import garbage

EDGES = [10.0, 12.0, 14.0, 16.0, 18.0, 20.0]  # quiet, flooded, quiet, flooded, quiet


def test_rows_are_counted_by_window():
    leases = [(9.9, 1000), (10.0, 4), (11.9, 6), (12.0, 8), (15.0, 12), (19.0, 2), (20.0, 1000)]
    assert garbage.rates(leases, EDGES) == [5, 4, 6, 0, 1]


def test_a_flooded_window_is_compared_with_the_quiet_ones_beside_it():
    assert garbage.ratios([10, 9, 8, 2, 12]) == pytest.approx([1.0, 0.2])


@pytest.mark.parametrize(
    ("moment", "flooded"),
    [(9, False), (11, False), (13, True), (15, False), (17, True), (19, False), (21, False)],
)
def test_moments_belong_to_windows(moment, flooded):
    assert garbage.flooded(EDGES, moment) is flooded


def test_waits_are_summed_up():
    assert garbage.milliseconds([n / 1000 for n in range(100, 0, -1)]) == pytest.approx(
        {"median": 50.5, "p99": 100, "max": 100}
    )


def test_processor_time_is_told_apart():
    used = [0.0, 1.0, 3.0, 4.0, 6.0, 7.0]
    assert garbage.load(EDGES, used) == {"quiet": 0.5, "flooded": 1.0}
