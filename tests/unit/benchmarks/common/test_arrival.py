import pytest

from benchmarks.common.arrival import arrival
from benchmarks.common.cases import CASES


def point(rows, loss, **values):
    return {"rows": rows, "seconds": rows / 10, "test_loss": loss, "test_values": values}


def test_the_moment_is_interpolated_between_two_evaluations():
    history = [point(0, 1.0), point(50, None), point(100, 0.5), point(200, 0.3)]
    assert arrival(history, 0.4) == pytest.approx((15.0, 150.0))
    assert arrival(history, 0.2) is None
    assert arrival(history, 2.0) == (0.0, 0.0)


def test_a_metric_arrives_from_below():
    values = {0: 0.1, 100: 0.5, 200: 0.6}
    history = [point(rows, 9.0 - rows, **{"P@1": value}) for rows, value in values.items()]
    case = CASES["citeulike"]  # to a P@1 of 0.55
    assert arrival(case.points(history), case.task.target) == pytest.approx((15.0, 150.0))
