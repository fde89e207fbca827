"""Dropout of the outputs of hidden layers, and its random numbers.

Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting". An
update sets each output to 0 with probability `fraction`, and divides the others by 1 - fraction,
which keeps their expected values. The layers have the activation RELU, so that an output that is
left out looks like one of an inactive unit to the backward pass, and no mask is stored.

Random numbers are hashes of counters (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1,
2, 3"): that of column h of a row is mixed(mixed(mixed(key + layer) + row) + SPREAD h), with the key
of the update. So they depend neither on the backend, nor on how rows are divided among threads.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

SPREAD: Final = np.uint32(0x9E3779B9)  # 2^32 / the golden ratio, odd


class Dropout(NamedTuple):
    """The dropout of a run."""

    fraction: float
    seed: int


def factor(fraction: Any) -> Any:
    """The factor of the outputs that are kept, and of their gradients."""
    return np.float32(1.0 / (1.0 - fraction))


def limit(fraction: Any) -> Any:
    """The random numbers below which outputs are left out: uint32."""
    return np.uint32(fraction * 4294967296.0)


def mixed(bits: Any) -> Any:
    """The last step of MurmurHash3 (Appleby 2011), for a uint32 or an array of them.

    It is a permutation, so different updates of a run have different keys.
    """
    bits = np.uint32(bits ^ (bits >> np.uint32(16)))
    bits = np.uint32(bits * np.uint32(0x85EBCA6B))
    bits = np.uint32(bits ^ (bits >> np.uint32(13)))
    bits = np.uint32(bits * np.uint32(0xC2B2AE35))
    return np.uint32(bits ^ (bits >> np.uint32(16)))


def key_of(seed: int, update: int) -> NDArray[np.uint32]:
    """The key [1] of an update, which is counted from 1."""
    low = np.array([seed & 0xFFFFFFFF, update & 0xFFFFFFFF], np.uint32)
    return np.asarray(mixed(mixed(low[:1]) + low[1:]))
