import math

import pytest
from hypothesis import given, strategies as st

from hogbatch.views.report.ticks import (
    LARGEST,
    Span,
    is_drawable,
    linear_span,
    linear_ticks,
    log_span,
    number,
    power_of_two_span,
    power_of_two_ticks,
    ticks,
)


def texts(found):
    return [tick.text for tick in found]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0.28, 0.36, ["0.28", "0.30", "0.32", "0.34", "0.36"]),
        (0, 45000, ["0", "10,000", "20,000", "30,000", "40,000"]),
        (0, 4e6, ["0", "1M", "2M", "3M", "4M"]),
        (0, 0.0045, ["0", "0.001", "0.002", "0.003", "0.004"]),
        (0, 4e-5, ["0", "1e-5", "2e-5", "3e-5", "4e-5"]),
        (-1, 1, ["-1.0", "-0.5", "0", "0.5", "1.0"]),
    ],
)
def test_linear_ticks_are_round(low, high, expected):
    assert texts(linear_ticks(low, high, 5)) == expected


@given(
    st.floats(-1e12, 1e12),
    st.floats(1e-6, 1e12),
    st.integers(2, 8),
)
def test_ticks_lie_in_the_range_and_are_few(low, size, most):
    high = low + size
    if not high - low > 1e-9 * max(abs(low), abs(high)):
        return  # no more digits to tell ticks apart
    found = linear_ticks(low, high, most)
    slack = 1e-6 * (high - low)
    assert len(found) <= most + 1
    assert all(low - slack <= tick.value <= high + slack for tick in found)
    values = [tick.value for tick in found]
    assert values == sorted(set(values))


@given(st.lists(st.floats(-1e12, 1e12), min_size=1), st.booleans())
def test_a_range_contains_its_values(values, from_zero):
    span = linear_span(values, from_zero=from_zero)
    assert span.low < span.high
    assert all(-1e-9 <= span.place(value) <= 1 + 1e-9 for value in values)
    assert min(values) < 0 or span.low >= 0, "a loss is not drawn below 0"


@given(st.lists(st.floats(1e-12, 1e12), min_size=1))
def test_a_logarithmic_range_contains_its_values(values):
    span = log_span(values)
    assert all(0 < span.place(value) < 1 for value in values)
    found = ticks(span, 5)
    assert found and all(-1e-6 < span.place(tick.value) < 1 + 1e-6 for tick in found)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([64], ["32", "64", "128"]),
        ([1], ["1", "2"]),
        ([16, 100], ["16", "32", "64", "128"]),
        ([1, 4096], ["1", "8", "64", "512", "4,096"]),
    ],
)
def test_batch_sizes_have_powers_of_two(values, expected):
    assert texts(power_of_two_ticks(power_of_two_span(values), 5)) == expected


def test_logarithmic_ticks_are_powers_of_ten_or_their_multiples():
    assert texts(ticks(Span(0.01, 1000, log=True), 6)) == ["0.01", "0.1", "1", "10", "100", "1,000"]
    assert texts(ticks(Span(0.3, 4, log=True), 5)) == ["0.3", "1", "3"]


def test_ranges_without_values_can_be_drawn():
    assert linear_span([]) != log_span([]) and power_of_two_span([]).low < 1
    assert linear_span([0.0], from_zero=True) == Span(0.0, 1.0)


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [(0.25, 0.01, "0.25"), (1234567, 1, "1.23457M"), (2e9, 1e9, "2e9"), (-3.5, 0.5, "-3.5")],
)
def test_numbers_have_the_digits_that_they_need(value, step, text):
    assert number(value, step) == text


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, 10 * LARGEST])
def test_values_that_cannot_be_drawn_are_known(value):
    assert not is_drawable(value)
