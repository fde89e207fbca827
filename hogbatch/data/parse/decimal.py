"""Decimal numbers in text as bounds, which are equal if they are the nearest float64.

Few digits and a small power of ten are exact in float64, so one product or quotient rounds once
(Clinger, "How to read floating point numbers accurately", 1990). All other numbers are a product of
two unevaluated sums of two float64 (Dekker, "A floating-point technique for extending the available
precision", 1971). Its error is below 2^-100 of it, so the bounds differ only very close to the
middle between two numbers.

Positions in text are uint64, which avoids Numba's check for negative indices. Numba converts the
sum of a uint64 and an int64 to float64, so the two types are never mixed.
"""

from fractions import Fraction

import numpy as np

from hogbatch.jit import exact, kernel

MINUS, PLUS, POINT, ZERO, NINE, BIG_E, SMALL_E = b"-+.09Ee"
MAX_POWER = 280  # numbers with larger powers of ten have the bounds 0 and infinity
EXPONENT_LIMIT = 1 << 40
MAX_DIGITS = 19  # that always fit into uint64
MAX_EXACT_POWER = 22  # the largest power of ten that is exact in float64
MAX_EXACT_DIGITS = np.uint64(1 << 53)
POWERS_OF_TEN = 10.0 ** np.arange(MAX_EXACT_POWER + 1)
ERROR = 2.0**-100
SPLITTER = 2.0**27 + 1  # splits the 53 bits of a float64 into two halves
ONE, TEN = np.uint64(1), np.uint64(10)


def _power(power: int) -> tuple[float, float]:
    """A power of ten as the sum of two float64."""
    high = float(Fraction(10) ** power)
    return high, float(Fraction(10) ** power - Fraction(high))


POWERS = np.array([_power(power) for power in range(-MAX_POWER, MAX_POWER + 1)])


@exact
def product(a, b):
    """a * b as the sum of two float64."""
    a_high, b_high = SPLITTER * a, SPLITTER * b
    a_high, b_high = a_high - (a_high - a), b_high - (b_high - b)
    a_low, b_low = a - a_high, b - b_high
    high = a * b
    low = ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low
    return high, low


@exact
def rounded(digits, power):
    """Bounds of digits * 10^power."""
    if digits <= MAX_EXACT_DIGITS and -MAX_EXACT_POWER <= power <= MAX_EXACT_POWER:
        whole = np.float64(np.int64(digits))
        whole = whole / POWERS_OF_TEN[-power] if power < 0 else whole * POWERS_OF_TEN[power]
        return whole, whole
    if digits == 0:
        return 0.0, 0.0
    if power < -MAX_POWER or power > MAX_POWER:
        return 0.0, np.inf
    whole = np.float64(digits)
    rest = np.float64(np.int64(digits - np.uint64(whole)))
    ten, ten_rest = POWERS[power + MAX_POWER, 0], POWERS[power + MAX_POWER, 1]
    high, low = product(whole, ten)
    low += whole * ten_rest + rest * ten
    return high + (low - high * ERROR), high + (low + high * ERROR)


@kernel
def leading(text, start, stop):
    """Parse up to 19 digits of text[start:stop], from the first nonzero digit.

    Returns the digits and the number of omitted digits.
    """
    digits, count, left_out = np.uint64(0), 0, 0
    for at in range(np.int64(start), np.int64(stop)):
        if text[at] == POINT:
            continue
        if count == MAX_DIGITS:
            left_out += 1
        else:
            digits = digits * TEN + np.uint64(np.int64(text[at]) - ZERO)
            count += digits > 0
    return digits, left_out


@kernel
def whole(text, at):
    """Parse the exponent after an e; return it and its end, which is `at` if there is none."""
    negative = text[at] == MINUS
    start = at + np.uint64(negative or text[at] == PLUS)
    end = start
    power = 0
    while ZERO <= text[end] <= NINE:
        if power < EXPONENT_LIMIT:
            power = power * 10 + (np.int64(text[end]) - ZERO)
        end += ONE
    return (-power if negative else power), (end if end > start else at)


@kernel
def number(text, at):
    """Parse the number at text[at]; return bounds as float64 and its end.

    The end is `at` if no number starts there. The text must end with a character that cannot be
    part of a number.
    """
    negative = text[at] == MINUS
    start = at + np.uint64(negative or text[at] == PLUS)
    end = start
    digits = np.uint64(0)
    while ZERO <= text[end] <= NINE:
        digits = digits * TEN + np.uint64(np.int64(text[end]) - ZERO)
        end += ONE
    count, power = np.int64(end - start), 0
    if text[end] == POINT:
        end += ONE
        point = end
        while ZERO <= text[end] <= NINE:
            digits = digits * TEN + np.uint64(np.int64(text[end]) - ZERO)
            end += ONE
        power = -np.int64(end - point)
        count -= power
    if count == 0:
        return 0.0, 0.0, at
    stop = end
    if text[end] == SMALL_E or text[end] == BIG_E:
        more, end = whole(text, stop + ONE)
        if end == stop + ONE:
            return 0.0, 0.0, at
        power += more
    if count <= MAX_DIGITS:
        low, high = rounded(digits, power)
    else:
        digits, left_out = leading(text, start, stop)
        low, high = rounded(digits, power + left_out)
        if left_out:
            high = rounded(digits + ONE, power + left_out)[1]
    return (-low, -high, end) if negative else (low, high, end)
