"""exp and functions based on it, without branches or calls, so that loops over them are vectorised.

Relative errors are below 5e-7 unless stated otherwise; NaN stays NaN.
"""

import numpy as np

from hogbatch.jit import exact, kernel
from hogbatch.kernels import contract

LOG2_E = np.float32(1.44269504)
LN2_HIGH = np.float32(0.693359375)  # ln 2 in two parts: n LN2_HIGH is exact
LN2_LOW = np.float32(-2.12194440e-4)
MIN_ARGUMENT = np.float32(-87.0)  # the smallest whole x for which e^x is a normal number
ONE, HALF, ZERO, TWO = np.float32(1.0), np.float32(0.5), np.float32(0.0), np.float32(2.0)
SELU_SLOPE, SELU_LIMIT = np.float32(contract.SELU_SLOPE), np.float32(contract.SELU_LIMIT)


@exact
def exp_negative(x):
    """e^x for x <= 0; e^-87 for x < -87. Cody and Waite's reduction, Cephes' polynomial."""
    x = MIN_ARGUMENT if x < MIN_ARGUMENT else x
    n = np.floor(x * LOG2_E + HALF)
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    return ((p * r * r + r) + ONE) * power_of_two(n)


@exact
def power_of_two(n):
    """2^n for an integer n in [-126, 127]; the result for NaN is unspecified."""
    whole = np.int32(0 if n != n else n)
    return np.int32((whole + 127) << 23).view(np.float32)


@exact
def log1p_unit(x):
    """log(1 + x) for x in [0, 1]: twice the series of artanh(x / (2 + x))."""
    s = x / (TWO + x)
    square = s * s
    p = np.float32(1 / 15)
    p = p * square + np.float32(1 / 13)
    p = p * square + np.float32(1 / 11)
    p = p * square + np.float32(1 / 9)
    p = p * square + np.float32(1 / 7)
    p = p * square + np.float32(1 / 5)
    p = p * square + np.float32(1 / 3)
    return TWO * (s + s * square * p)


@kernel
def sigmoid(z):
    """1 / (1 + e^-z)."""
    small = exp_negative(-abs(z))
    return (ONE if z >= ZERO else small) / (ONE + small)


@kernel
def softplus(z):
    """log(1 + e^z)."""
    return (z if z > ZERO else ZERO) + log1p_unit(exp_negative(-abs(z)))


@kernel
def tanh(z):
    """(1 - e^-2|z|) / (1 + e^-2|z|) with the sign of z; Cephes' polynomial for |z| < 0.625.

    The formula suffers from cancellation near 0.
    """
    small = exp_negative(-TWO * abs(z))
    far = (ONE - small) / (ONE + small)
    square = z * z
    p = np.float32(-5.70498872745e-3)
    p = p * square + np.float32(2.06390887954e-2)
    p = p * square + np.float32(-5.37397155531e-2)
    p = p * square + np.float32(1.33314422036e-1)
    p = p * square + np.float32(-3.33332819422e-1)
    near = z + z * square * p
    signed = far if z >= ZERO else -far
    return near if abs(z) < np.float32(0.625) else signed


@kernel
def selu(z):
    """SELU_LIMIT (e^z - 1) for z <= 0; e^z - 1 = 2t / (1 - t) with t = tanh(z / 2)."""
    t = tanh(HALF * z)
    return SELU_SLOPE * z if z > ZERO else TWO * SELU_LIMIT * t / (ONE - t)


@kernel
def selu_slope(a):
    """The derivative where the value is `a`."""
    return SELU_SLOPE if a > ZERO else a + SELU_LIMIT
