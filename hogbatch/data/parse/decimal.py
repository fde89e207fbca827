"""Decimal numbers in text, to the nearest float64.

Few digits and a small power of ten are exact in float64, so one product or quotient rounds once
(Clinger, "How to read floating point numbers accurately", 1990). All other numbers use the product
of the digits with the first 128 bits of a power of five (Lemire, "Number parsing at a gigabyte per
second", 2021), which is always enough (Mushtak and Lemire, "Fast number parsing without fallback",
2023).

Positions in text are uint64, which avoids Numba's check for negative indices. Numba converts the
sum of a uint64 and an int64 to float64, so the two types are never mixed.
"""

import numpy as np

from hogbatch.jit import exact, kernel

MINUS, PLUS, POINT, ZERO, NINE, BIG_E, SMALL_E = b"-+.09Ee"
# With powers of ten beyond these, 1 to 2^64 - 1 times the power is 0 or infinite.
MIN_POWER, MAX_POWER = -342, 308
EXPONENT_LIMIT = 1 << 40  # larger exponents give 0 or infinity for any number of digits
MAX_DIGITS = 19  # that always fit into uint64
MAX_EXACT_POWER = 22  # the largest power of ten that is exact in float64
MAX_EXACT_DIGITS = np.uint64(1 << 53)
POWERS_OF_TEN = 10.0 ** np.arange(MAX_EXACT_POWER + 1)

FRACTION_BITS = 52  # bits of a float64's fraction
EXPONENT_BIAS, INFINITE_EXPONENT = 1023, 2047  # of a float64's exponent
HIDDEN_BIT = np.uint64(1 << FRACTION_BITS)
GUARD_MASK = np.uint64((1 << 9) - 1)  # bits of the product below the fraction bits
HALF_WORD_BITS, LOW_HALF_MASK = np.uint64(32), np.uint64((1 << 32) - 1)
WORD_BITS, TOP_BIT = np.uint64(64), np.uint64(63)
STEPS = tuple(np.uint64(step) for step in (32, 16, 8, 4, 2, 1))
ONE, THREE, TEN = np.uint64(1), np.uint64(3), np.uint64(10)


def _power_of_five(power: int) -> int:
    """The first 128 bits of 5^power, rounded down, or up for powers from -27 to -1."""
    five = 5 ** abs(power)
    if power >= 0:
        return (five << 128) >> five.bit_length()
    return (1 << (five.bit_length() + 127)) // five + (power >= -27)


POWERS_OF_FIVE = np.array(
    [divmod(_power_of_five(power), 1 << 64) for power in range(MIN_POWER, MAX_POWER + 1)], np.uint64
)


@kernel
def product(a, b):
    """The upper and lower word of a * b."""
    a_low, a_high = a & LOW_HALF_MASK, a >> HALF_WORD_BITS
    b_low, b_high = b & LOW_HALF_MASK, b >> HALF_WORD_BITS
    low = a_low * b_low
    middle = a_high * b_low + (low >> HALF_WORD_BITS)
    cross = a_low * b_high + (middle & LOW_HALF_MASK)
    high = a_high * b_high + (middle >> HALF_WORD_BITS) + (cross >> HALF_WORD_BITS)
    return high, (cross << HALF_WORD_BITS) | (low & LOW_HALF_MASK)


@kernel
def normalized(digits):
    """Shift digits (not 0) left until the top bit is set; return the shift too."""
    shift = 0
    for step in STEPS:
        if digits >> (WORD_BITS - step) == 0:
            digits <<= step
            shift += np.int64(step)
    return digits, shift


@exact
def scaled(digits, power):
    """digits * 10^power as float64, using a 128-bit power of five."""
    if digits == 0 or power < MIN_POWER:
        return 0.0
    if power > MAX_POWER:
        return np.inf
    digits, shift = normalized(digits)
    high, low = product(digits, POWERS_OF_FIVE[power - MIN_POWER, 0])
    if high & GUARD_MASK == GUARD_MASK:
        more, _ = product(digits, POWERS_OF_FIVE[power - MIN_POWER, 1])
        high += np.uint64(more > ~low)
        low = (low + more) if more <= ~low else more - ~low - ONE
    upper = np.int64(high >> TOP_BIT)
    cut = np.uint64(upper + 64 - FRACTION_BITS - 3)
    fraction = high >> cut  # with one extra bit for rounding
    # 10^power is 5^power * 2^power, and 152170 / 2^16 approximates the binary logarithm of 5.
    exponent = ((power * (152170 + (1 << 16))) >> 16) + 63 + upper - shift + EXPONENT_BIAS
    if exponent <= 0:  # subnormal
        if exponent <= -63:
            return 0.0
        fraction >>= np.uint64(1 - exponent)
        # A fraction that rounds up to 2^52 has the bits of the first normal number.
        return np.uint64((fraction + (fraction & ONE)) >> ONE).view(np.float64)
    if low <= ONE and -4 <= power <= 23 and fraction & THREE == ONE and fraction << cut == high:
        fraction &= ~ONE  # halfway between two numbers: round to even
    fraction = (fraction + (fraction & ONE)) >> ONE
    if fraction == HIDDEN_BIT << ONE:
        fraction = HIDDEN_BIT
        exponent += 1
    if exponent >= INFINITE_EXPONENT:
        return np.inf
    field = np.uint64(exponent) << np.uint64(FRACTION_BITS)
    return np.uint64((fraction & ~HIDDEN_BIT) | field).view(np.float64)


@exact
def rounded(digits, power):
    """digits * 10^power as float64."""
    if digits > MAX_EXACT_DIGITS or power < -MAX_EXACT_POWER or power > MAX_EXACT_POWER:
        return scaled(digits, power)
    whole = np.float64(np.int64(digits))
    return whole / POWERS_OF_TEN[-power] if power < 0 else whole * POWERS_OF_TEN[power]


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

    The end is `at` if no number starts there. The bounds differ if the number has more digits than
    are parsed and the omitted digits affect the result. The text must end with a character that
    cannot be part of a number.
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
