import pytest
from hypothesis import given, strategies as st

from hogbatch.policy.learning_rate import SCALINGS, LearningRate


@pytest.mark.parametrize(
    ("scaling", "large", "small"), [("none", 0.1, 1.0), ("linear", 6.4, 0.25), ("sqrt", 0.8, 0.5)]
)
def test_the_reference_batch_takes_the_base_rate_and_others_a_scaled_one(scaling, large, small):
    assert LearningRate(0.1, scaling).at(64) == pytest.approx(large)
    assert LearningRate(1.0, scaling, reference=64).at(16) == pytest.approx(small)
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
