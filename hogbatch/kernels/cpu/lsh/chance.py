"""Cheap random numbers for compiled code, 32 bits at a time in int64, which never overflows."""

import numpy as np

from hogbatch.jit import kernel

LOW = 0xFFFFFFFF  # 32 bits


@kernel
def mix(number):
    """32 bits that look random, from the low 32 bits of `number`, one to one.

    The multipliers are from the survey of C. Wellons's hash-prospector.
    """
    x = np.int64(number) & LOW
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & LOW
    x = ((x ^ (x >> 15)) * 0x735A2D97) & LOW
    return x ^ (x >> 15)


@kernel
def scaled(number, bound):
    """A number of 32 bits brought into [0, bound)."""
    return (number * bound) >> 32


@kernel
def below(state, bound):
    """The next number in [0, bound) of the generator `state`, an int64[1] in [1, 2^32).

    Marsaglia 2003, "Xorshift RNGs", 32 bits.
    """
    x = state[0]
    x ^= (x << 13) & LOW
    x ^= x >> 17
    x ^= (x << 5) & LOW
    state[0] = x
    return scaled(x, bound)
