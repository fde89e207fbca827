"""Decimal numbers in text, to the nearest float64.

Few digits and a small power of ten are exact in float64, so one product or quotient rounds once
(Clinger, "How to read floating point numbers accurately", 1990). All others go by the product of
the digits with the first 128 bits of a power of five (Lemire, "Number parsing at a gigabyte per
second", 2021), which is always enough (Mushtak and Lemire, "Fast number parsing without fallback",
2023).

Positions in text are uint64, which spares Numba's check for negative indices; Numba would take a
sum of uint64 and int64 to float64, so the two are kept apart.
"""

import numpy as np

from hogbatch.jit import exact, kernel

MINUS, PLUS, POINT, ZERO, NINE, BIG_E, SMALL_E = b"-+.09Ee"
LEAST, MAX = -342, 308  # powers of ten beyond which 1 to 2^64 - 1 times them is 0 or infinity
FAR = 1 << 40  # a power of ten that no number of digits brings back
MAX_DIGITS = 19  # that always fit into uint64
EXACT_TEN = 22  # the largest power of ten that is exact in float64
EXACT_DIGITS = np.uint64(1 << 53)
TENS = 10.0 ** np.arange(EXACT_TEN + 1)

FRACTION = 52  # bits of a float64's fraction
BIAS, INFINITE = 1023, 2047  # of a float64's exponent
HIDDEN = np.uint64(1 << FRACTION)
UNSURE = np.uint64((1 << 9) - 1)  # bits of the product below those that make the fraction
HALF_WORD, LOW_HALF = np.uint64(32), np.uint64((1 << 32) - 1)
WORD, TOP = np.uint64(64), np.uint64(63)
STEPS = tuple(np.uint64(step) for step in (32, 16, 8, 4, 2, 1))
ONE, THREE, TEN = np.uint64(1), np.uint64(3), np.uint64(10)


def _five(power: int) -> int:
    """The first 128 bits of 5^power, rounded down, but up for powers from -27 to -1."""
    five = 5 ** abs(power)
    if power >= 0:
        return (five << 128) >> five.bit_length()
    return (1 << (five.bit_length() + 127)) // five + (power >= -27)


FIVES = np.array([divmod(_five(power), 1 << 64) for power in range(LEAST, MAX + 1)], np.uint64)


@kernel
def product(a, b):
    """The upper and the lower word of a * b."""
    a_low, a_high, b_low, b_high = a & LOW_HALF, a >> HALF_WORD, b & LOW_HALF, b >> HALF_WORD
    low = a_low * b_low
    middle = a_high * b_low + (low >> HALF_WORD)
    cross = a_low * b_high + (middle & LOW_HALF)
    high = a_high * b_high + (middle >> HALF_WORD) + (cross >> HALF_WORD)
    return high, (cross << HALF_WORD) | (low & LOW_HALF)


@kernel
def normalized(digits):
    """Shift digits (not 0) left until the top bit is set; tell how far, too."""
    shift = 0
    for step in STEPS:
        if digits >> (WORD - step) == 0:
            digits <<= step
            shift += np.int64(step)
    return digits, shift


@exact
def scaled(digits, power):
    """digits * 10^power as float64, by a power of five of 128 bits."""
    if digits == 0 or power < LEAST:
        return 0.0
    if power > MAX:
        return np.inf
    digits, shift = normalized(digits)
    high, low = product(digits, FIVES[power - LEAST, 0])
    if high & UNSURE == UNSURE:
        more, _ = product(digits, FIVES[power - LEAST, 1])
        high += np.uint64(more > ~low)
        low = (low + more) if more <= ~low else more - ~low - ONE
    upper = np.int64(high >> TOP)
    cut = np.uint64(upper + 64 - FRACTION - 3)
    fraction = high >> cut  # with one bit more than fits
    # 10^power is 5^power * 2^power, and 152170 / 2^16 is about the binary logarithm of 5.
    exponent = ((power * (152170 + (1 << 16))) >> 16) + 63 + upper - shift + BIAS
    if exponent <= 0:  # below the normal numbers
        if exponent <= -63:
            return 0.0
        fraction >>= np.uint64(1 - exponent)
        # One that rounds up to 2^52 has the bits of the first normal number.
        return np.uint64((fraction + (fraction & ONE)) >> ONE).view(np.float64)
    if low <= ONE and -4 <= power <= 23 and fraction & THREE == ONE and fraction << cut == high:
        fraction &= ~ONE  # just between two numbers: to the even one
    fraction = (fraction + (fraction & ONE)) >> ONE
    if fraction == HIDDEN << ONE:
        fraction = HIDDEN
        exponent += 1
    if exponent >= INFINITE:
        return np.inf
    field = np.uint64(exponent) << np.uint64(FRACTION)
    return np.uint64((fraction & ~HIDDEN) | field).view(np.float64)


@exact
def rounded(digits, power):
    """digits * 10^power as float64."""
    if digits > EXACT_DIGITS or power < -EXACT_TEN or power > EXACT_TEN:
        return scaled(digits, power)
    whole = np.float64(np.int64(digits))
    return whole / TENS[-power] if power < 0 else whole * TENS[power]


@kernel
def leading(text, start, stop):
    """Read up to 19 digits of text[start:stop], from the first that is not 0 on.

    Returns the digits, and how many are left out.
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
    """The whole number after an e, and where it ends: at `at` if there is none."""
    negative = text[at] == MINUS
    start = at + np.uint64(negative or text[at] == PLUS)
    end = start
    power = 0
    while ZERO <= text[end] <= NINE:
        if power < FAR:
            power = power * 10 + (np.int64(text[end]) - ZERO)
        end += ONE
    return (-power if negative else power), (end if end > start else at)


@kernel
def number(text, at):
    """Bounds of the number at text[at], as float64, and where it ends: at `at` if there is none.

    The bounds differ if there are more digits than can be looked at, and these matter. The text
    must end with something that is no part of a number.
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
        low = high = rounded(digits, power)
    else:
        digits, left_out = leading(text, start, stop)
        low = rounded(digits, power + left_out)
        high = rounded(digits + ONE, power + left_out) if left_out else low
    return (-low, -high, end) if negative else (low, high, end)
