import pytest

from hogbatch.views.live.display import INTERVAL_S, SAVED_S, SHARE, RedrawBudget


@pytest.mark.parametrize(("cost", "least", "most"), [(0.0005, 2400, 2401), (0.1, 2, 40)])
def test_an_expensive_view_is_drawn_less_often(cost, least, most):
    budget, now, pause, frames = RedrawBudget(), 0.0, 0.0, 0
    while now + pause <= 600:
        now += pause
        pause = budget.pause(cost, pause)
        frames += 1
    assert least <= frames <= most
    assert frames * cost <= 1.0001 * (SHARE * 600 + SAVED_S + cost)


def test_time_without_frames_is_not_saved_up():
    budget = RedrawBudget()
    assert budget.pause(0.0, 1000.0) == INTERVAL_S and budget.left == SAVED_S
