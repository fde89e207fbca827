"""Bounds of numbers in text contain Python's float(), and are nearly always equal to it."""

import math
import struct

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from hogbatch.data.parse.decimal import number
from tests.support.property_tests import max_examples

# Compiled code wraps integers and overflows floats silently; NumPy warns in interpreted code.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


def parse(token):
    """Bounds and length of the number at the start of a token."""
    text = np.frombuffer(token.encode() + b"\n", np.uint8)
    low, high, end = number(text, np.uint64(0))
    return low, high, int(end)


def bits(value):
    return struct.pack("d", value)


def assert_nearest(token):
    low, high, end = parse(token)
    assert end == len(token)
    assert bits(low) == bits(high) == bits(float(token))


def assert_bounds(token):
    low, high, end = parse(token)
    assert end == len(token) and min(low, high) <= float(token) <= max(low, high)


def halfway(value):
    """The number halfway between `value` and the next one away from 0, with all digits."""
    numerator, denominator = abs(value).as_integer_ratio()
    up, below = math.nextafter(abs(value), math.inf).as_integer_ratio()
    top, bottom = numerator * below + up * denominator, 2 * denominator * below
    places = bottom.bit_length()  # at least as many as the power of two in it
    return top * 10**places // bottom, -places


any_double = st.floats(allow_nan=False, allow_infinity=False)
exponents = st.one_of(st.integers(-30, 30), st.integers(-400, 400), st.integers(-(10**30), 10**30))


@max_examples(300)
@given(any_double)
@example(5e-324)
@example(2.2250738585072011e-308)
@example(2.2250738585072014e-308)
@example(1.7976931348623157e308)
@example(2.0**128 - 2.0**103)
@example(9007199254740993.0)
def test_what_python_writes(value):
    usual = value == 0 or 1e-250 < abs(value) < 1e250
    for form in (repr(value), f"{value:.18e}", f"{value:.3g}"):
        (assert_nearest if usual else assert_bounds)(form)


@max_examples(400)
@given(st.text("0123456789", min_size=1, max_size=40), st.integers(0, 40), exponents)
@example("9007199254740993", 16, 0)
@example("1844674407370955161", 0, 300)
@example("0" * 30 + "1234567890123456789", 1, 0)  # leading zeros are no digits
def test_any_number_of_digits_gives_bounds(text, point, exponent):
    for token in (f"{text[:point]}.{text[point:]}e{exponent}", text):
        assert_bounds(token)
        assert_bounds(f"-{token}")
    low, high, _ = parse(text)
    assert high <= math.nextafter(low, math.inf)


@max_examples(200)
@given(any_double.filter(lambda value: abs(value) < 1e308), st.integers(1, 19))
def test_numbers_close_to_halfway_between_two(value, kept):
    top, power = halfway(value)
    text = str(top)
    cut = int(text[:kept])
    for near in (cut - 1, cut, cut + 1):
        if near >= 0:
            assert_bounds(f"{near}e{power + max(len(text) - kept, 0)}")
    assert_bounds(f"{text}e{power}")


@max_examples(100)
@given(st.text("0123456789.eE+-_xn", max_size=12))
@example("")
@example("-")
@example("1e+")
@example(".e1")
def test_a_number_ends_where_no_number_goes_on(token):
    low, _, end = parse(token)
    if end:
        assert low == 0 or bits(low) == bits(float(token[:end]))
    else:
        with pytest.raises(ValueError):
            float(token)
