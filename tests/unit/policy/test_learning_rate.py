import pytest
from hypothesis import given, strategies as st

from hogbatch.policy.learning_rate import SCALINGS, LearningRate


@pytest.mark.parametrize(
    ("scaling", "rate"), [("none", 0.1), ("linear", 0.1 * 64), ("sqrt", 0.1 * 8)]
)
def test_a_larger_batch_takes_a_scaled_rate(scaling, rate):
    assert LearningRate(0.1, scaling).at(64) == pytest.approx(rate)


@pytest.mark.parametrize(("scaling", "rate"), [("none", 1.0), ("linear", 0.25), ("sqrt", 0.5)])
def test_a_batch_below_the_reference_is_scaled_down(scaling, rate):
    assert LearningRate(1.0, scaling, reference=64).at(16) == pytest.approx(rate)


@pytest.mark.parametrize("scaling", SCALINGS)
def test_the_reference_batch_takes_the_base_rate(scaling):
    assert LearningRate(0.3, scaling, reference=32, cap=2.0).at(32) == 0.3


@given(
    scaling=st.sampled_from(list(SCALINGS)),
    reference=st.integers(1, 512),
    cap=st.floats(1, 100),
    sizes=st.lists(st.integers(1, 10**6), min_size=2, max_size=2).map(sorted),
)
def test_rates_never_fall_with_the_batch_nor_pass_the_cap(scaling, reference, cap, sizes):
    rate = LearningRate(0.1, scaling, reference, cap)
    assert 0 < rate.at(sizes[0]) <= rate.at(sizes[1]) <= 0.1 * cap
