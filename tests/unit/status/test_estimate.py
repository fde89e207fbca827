import math

import pytest
from hypothesis import given, strategies as st

from hogbatch.status.estimate import (
    FEWEST,
    HORIZON,
    epoch_progress,
    seconds_of_epoch_left,
    seconds_to_target,
    time_to_loss,
)
from tests.support.property_tests import max_examples
from tests.unit.status.conftest import (
    ended,
    evaluation,
    joined as worker_joined,
    lease,
    ready,
    started,
    state_after,
)

LIMITS = st.floats(0.01, 10)
SCALES = st.floats(0.1, 10)
EXPONENTS = st.sampled_from([0.25, 0.5, 1.0, 2.0])
LOSSES = st.floats(0, 1e6) | st.sampled_from([math.inf, -math.inf, math.nan])


def course(limit, scale, exponent, count=20, step=1.0):
    """Points of a power law."""
    return [(step * n, limit + scale * (step * n) ** -exponent) for n in range(1, count + 1)]


@max_examples(100)
@given(LIMITS, SCALES, EXPONENTS, st.floats(1.2, 0.9 * HORIZON))
def test_the_time_on_an_exact_curve_is_found(limit, scale, exponent, later):
    time = 20 * later
    found = time_to_loss(course(limit, scale, exponent), limit + scale * time**-exponent)
    assert found == pytest.approx(time, rel=1e-3)


@max_examples(100)
@given(LIMITS, SCALES, EXPONENTS, st.integers(0, 19), st.floats(-5, 5))
def test_one_wrong_evaluation_changes_little(limit, scale, exponent, place, error):
    points, time = course(limit, scale, exponent), 40.0
    points[place] = (points[place][0], points[place][1] + error)
    found = time_to_loss(points, limit + scale * time**-exponent)
    assert found == pytest.approx(time, rel=0.05)


@max_examples(100)
@given(st.lists(st.tuples(st.floats(0, 1e6), LOSSES), max_size=40), st.floats(0, 1e6))
def test_any_course_gives_a_time_within_the_horizon_or_none(points, target):
    points.sort()
    found = time_to_loss(points, target)
    assert found is None or 0 <= found <= HORIZON * points[-1][0]


@max_examples(100)
@given(LIMITS, st.lists(st.floats(-0.01, 0.01), min_size=20, max_size=20), st.floats(0, 1))
def test_a_lower_target_is_not_reached_earlier(limit, noise, other):
    points = [(t, loss + each) for (t, loss), each in zip(course(limit, 1, 1), noise, strict=True)]
    low, high = sorted((limit + 0.03, limit + other))
    later, earlier = time_to_loss(points, low), time_to_loss(points, high)
    assert later is None or (earlier is not None and earlier <= later)


@max_examples(50)
@given(st.lists(st.floats(0.1, 1), min_size=FEWEST, max_size=30), st.floats(0.01, 1))
def test_a_clock_twice_as_fast_gives_twice_the_time(losses, target):
    points = [(float(n + 1), loss) for n, loss in enumerate(losses)]
    found = time_to_loss(points, target)
    doubled = time_to_loss([(4 * seconds, loss) for seconds, loss in points], target)
    assert (found is None) == (doubled is None)
    assert found is None or doubled == pytest.approx(4 * found, rel=1e-6)


@pytest.mark.parametrize(
    "points",
    [
        [],
        course(0.3, 1, 1)[: FEWEST - 1],
        [(float(n), 0.5) for n in range(1, 20)],  # it does not fall
        [(float(n), 0.1 * n) for n in range(1, 20)],  # it rises
        [(float(n), 0.5 + 0.01 * (-1) ** n - 1e-4 * n) for n in range(1, 20)],  # mostly noise
        course(0.45, 1, 1),  # it does not fall that far
        [(1.0, 0.5 - 0.01 * n) for n in range(20)],  # one moment
    ],
)
def test_what_cannot_be_known_is_none(points):
    assert time_to_loss(points, 0.4) is None


def test_the_target_of_a_run_is_estimated_from_now_on():
    points = course(0.3, 0.2, 1.0, count=10)
    evaluations = [evaluation(t, round(100 * t), loss) for t, loss in points]
    run = state_after(started(target_loss=0.31), *evaluations)
    assert seconds_to_target(run) == pytest.approx(10.0, rel=1e-3)
    run.apply(ended("target"))
    assert seconds_to_target(run) is None
    assert seconds_to_target(state_after(started(), *evaluations)) is None


def test_the_epoch_is_measured():
    run = state_after(started(), worker_joined(), ready(), lease(2.0, 0, 400))
    assert epoch_progress(run) == 0.4 and seconds_of_epoch_left(run) == pytest.approx(3.0)
    run.apply(lease(5.0, 400, 1000))
    assert epoch_progress(run) == 0.0
    run.apply(ended(rows=1000, seconds=5.0))
    assert epoch_progress(run) == 1.0 and seconds_of_epoch_left(run) is None
