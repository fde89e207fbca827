"""Fast random numbers for compiled code: 32 bits at a time, in int64 so that nothing overflows."""

import numpy as np

from hogbatch.jit import kernel

MASK_32 = 0xFFFFFFFF


@kernel
def mix(number):
    """A bijective 32-bit hash of the low 32 bits of `number`.

    The multipliers are from C. Wellons's survey hash-prospector.
    """
    x = np.int64(number) & MASK_32
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & MASK_32
    x = ((x ^ (x >> 15)) * 0x735A2D97) & MASK_32
    return x ^ (x >> 15)


@kernel
def to_range(number, bound):
    """Scale a 32-bit number to [0, bound)."""
    return (number * bound) >> 32


@kernel
def random_below(state, bound):
    """Draw a number in [0, bound) from the generator `state`, an int64[1] in [1, 2^32).

    Marsaglia 2003, "Xorshift RNGs", the 32-bit version.
    """
    x = state[0]
    x ^= (x << 13) & MASK_32
    x ^= x >> 17
    x ^= (x << 5) & MASK_32
    state[0] = x
    return to_range(x, bound)
