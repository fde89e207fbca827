"""Numbers in text are parsed to the nearest float64, like Python's float()."""

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from hogbatch.data.parse.decimal import MIN_POWER, POWERS_OF_FIVE, number
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
    for form in (repr(value), f"{value:.18e}", f"{value:.3g}"):
        assert_nearest(form)


@max_examples(400)
@given(st.text("0123456789", min_size=1, max_size=40), st.integers(0, 40), exponents)
@example("9007199254740993", 16, 0)
@example("1844674407370955161", 0, 300)
@example("0" * 30 + "1234567890123456789", 1, 0)  # leading zeros are no digits
def test_up_to_19_digits_are_always_enough_and_more_give_bounds(text, point, exponent):
    token = f"{text[:point]}.{text[point:]}e{exponent}"
    if len(text.lstrip("0")) <= 19:
        assert_nearest(token)
        assert_nearest(f"-{text[:point]}.{text[point:]}E{exponent:+}")
        assert_nearest(text)
    low, high, end = parse(token)
    assert end == len(token)
    assert low <= float(token) <= high <= math.nextafter(low, math.inf)


@max_examples(200)
@given(any_double.filter(lambda value: abs(value) < 1e308), st.integers(1, 19))
def test_numbers_close_to_halfway_between_two(value, kept):
    top, power = halfway(value)
    text = str(top)
    cut = int(text[:kept])
    for near in (cut - 1, cut, cut + 1):
        if near >= 0:
            assert_nearest(f"{near}e{power + max(len(text) - kept, 0)}")
    low, high, _ = parse(f"{text}e{power}")
    assert low <= float(f"{text}e{power}") <= high


@max_examples(200)
@given(st.integers(-4, 23), st.integers(0, 2**53), st.integers(0, 9))
def test_exact_halves_go_to_the_even_number(power, number, shift):
    """An odd number of 54 bits is halfway; with these powers of ten, 19 digits can be one."""
    if power < 0:
        digits = ((2**53 + number) | 1) * 5**-power
    else:
        least = -(-(2**53) // 5**power)
        odd = (least + number % least) | 1  # the product with 5^power has 54 bits
        digits = odd << max(1, 54 - odd.bit_length()) + shift
    if digits < 10**19:
        assert_nearest(f"{digits}e{power}")


@max_examples(100)
@given(st.text("0123456789.eE+-_xn", max_size=12))
@example("")
@example("-")
@example("1e+")
@example(".e1")
def test_a_number_ends_where_no_number_goes_on(token):
    low, _, end = parse(token)
    if end:
        assert bits(low) == bits(float(token[:end]))
    else:
        with pytest.raises(ValueError):
            float(token)


def test_powers_of_five_are_off_by_less_than_their_last_bit():
    for power, words in enumerate(POWERS_OF_FIVE.tolist(), MIN_POWER):
        exact = Fraction(5) ** power
        length = exact.numerator.bit_length() - exact.denominator.bit_length()
        exact *= Fraction(2) ** (128 - length - (exact >= Fraction(2) ** length))
        above = (words[0] << 64) + words[1] - exact
        assert 0 < above <= 1 if -27 <= power < 0 else -1 < above <= 0
