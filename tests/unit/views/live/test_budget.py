import pytest

from hogbatch.views.live.budget import INTERVAL_S, SAVED_S, SHARE, RedrawBudget


def spent(cost, seconds):
    """The CPU seconds and the number of frames of a view whose frames cost `cost`."""
    budget, now, pause, frames = RedrawBudget(), 0.0, 0.0, 0
    while now + pause <= seconds:
        now += pause
        pause = budget.pause(cost, pause)
        frames += 1
    return frames * cost, frames


def test_a_cheap_view_is_drawn_four_times_a_second():
    assert spent(0.0005, 10)[1] == 41


@pytest.mark.parametrize("cost", [0.002, 0.01, 0.1])
def test_an_expensive_view_is_drawn_less_often(cost):
    used, frames = spent(cost, 600)
    assert used <= 1.0001 * (SHARE * 600 + SAVED_S + cost)
    assert 1 < frames < 600 / INTERVAL_S


def test_time_without_frames_is_not_saved_up():
    budget = RedrawBudget()
    assert budget.pause(0.0, 1000.0) == INTERVAL_S and budget.left == SAVED_S
