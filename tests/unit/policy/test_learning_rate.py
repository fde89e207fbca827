import pytest
from hypothesis import given, strategies as st

from hogbatch.policy.learning_rate import SCALINGS, SCHEDULES, LearningRate


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


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", {0: 1.0, 99: 1.0}),
        ("cosine", {0: 0.999938, 49: 0.507854, 99: 6.1684e-5}),
        ("flat-cos", {0: 1.0, 49: 1.0, 74: 0.515705, 99: 2.4672e-4}),
        ("one-cycle", {0: 0.05, 9: 0.95, 10: 0.999924, 99: 7.6152e-5}),
        # its cycles end after 1/15, 3/15 and 7/15 of the epochs
        ("coslog4", {0: 0.103649, 6: 0.0032468, 12: 0.994531, 19: 0.0073416, 46: 2.0122e-4}),
    ],
)
def test_a_schedule_is_a_factor_of_the_rate_by_epoch(schedule, expected):
    rate = LearningRate(0.1, "sqrt", schedule=schedule, epochs=100)
    found = {epoch: rate.at(4, epoch) / 0.2 for epoch in expected}
    assert found == pytest.approx(expected, rel=1e-4)


@given(schedule=st.sampled_from(list(SCHEDULES)), epochs=st.integers(1, 1000))
def test_no_epoch_has_a_rate_of_zero(schedule, epochs):
    rate = LearningRate(0.1, schedule=schedule, epochs=epochs)
    factors = [rate.at(1, epoch) / 0.1 for epoch in range(epochs)]
    assert min(factors) > 0.0 and max(factors) <= 1.0 + 1e-12
