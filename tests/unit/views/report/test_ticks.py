import pytest
from hypothesis import given, strategies as st

from hogbatch.views.report.ticks import (
    Span,
    linear_span,
    linear_ticks,
    log_span,
    power_of_two_span,
    power_of_two_ticks,
    ticks,
)


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (Span(0, 1), "0 0.2 0.4 0.6 0.8 1.0"),
        (Span(0.28, 0.36), "0.28 0.30 0.32 0.34 0.36"),
        (Span(0, 45000), "0 10,000 20,000 30,000 40,000"),
        (Span(0, 4e6), "0 1M 2M 3M 4M"),
        (Span(0, 0.0045), "0 0.001 0.002 0.003 0.004"),
        (Span(0, 4e-5), "0 1e-5 2e-5 3e-5 4e-5"),
        (Span(-1, 1), "-1.0 -0.5 0 0.5 1.0"),
        (Span(0.01, 1000, log=True), "0.01 0.1 1 10 100 1,000"),
        (Span(0.3, 4, log=True), "0.3 1 3"),
    ],
)
def test_ticks_are_round(span, expected):
    assert [tick.text for tick in ticks(span, 5)] == expected.split()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([64], "32 64 128"),
        ([1], "1 2"),
        ([16, 100], "16 32 64 128"),
        ([1, 4096], "1 8 64 512 4,096"),
    ],
)
def test_batch_sizes_have_powers_of_two(values, expected):
    found = power_of_two_ticks(power_of_two_span(values), 5)
    assert [tick.text for tick in found] == expected.split()


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12), st.integers(2, 8))
def test_ticks_lie_in_the_range_and_are_few(low, size, most):
    high = low + size
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        return  # no more digits to tell ticks apart
    values = [tick.value for tick in linear_ticks(low, high, most)]
    slack = 1e-6 * (high - low)
    assert len(values) <= most + 1 and values == sorted(set(values))
    assert all(low - slack <= value <= high + slack for value in values)


@given(st.lists(st.floats(1e-12, 1e12), min_size=1), st.booleans(), st.booleans())
def test_a_range_contains_its_values(values, from_zero, negative):
    logarithmic = log_span(values)
    assert all(0 < logarithmic.place(value) < 1 for value in values)
    assert all(-1e-6 < logarithmic.place(t.value) < 1 + 1e-6 for t in ticks(logarithmic, 5))
    values = [-value for value in values] if negative else values
    span = linear_span(values, from_zero=from_zero)
    assert span.low < span.high
    assert all(-1e-9 <= span.place(value) <= 1 + 1e-9 for value in values)
    assert negative or span.low >= 0, "a loss is not drawn below 0"


def test_ranges_without_values_can_be_drawn():
    assert linear_span([]) != log_span([]) and power_of_two_span([]).low < 1
    assert linear_span([0.0], from_zero=True) == Span(0.0, 1.0)
