import pytest

from benchmarks.common.arrival import arrival


def point(rows, loss, value=0.0):
    return {"rows": rows, "seconds": rows / 10, "test_loss": loss, "test_value": value}


def test_the_moment_is_interpolated_between_two_evaluations():
    history = [point(0, 1.0), point(50, None), point(100, 0.5), point(200, 0.3)]
    assert arrival(history, 0.4) == pytest.approx((15.0, 150.0))
    assert arrival(history, 0.2) is None
    assert arrival(history, 2.0) == (0.0, 0.0)


def test_a_metric_arrives_from_below():
    several_servers = pytest.importorskip("benchmarks.several_servers")
    history = [point(0, 9.0, 0.1), point(100, 8.0, 0.5), point(200, 7.0, 0.6)]
    problem = several_servers.PROBLEMS["citeulike"]  # a metric of 0.55
    assert several_servers.crossing(history, problem) == pytest.approx((15.0, 150.0))
