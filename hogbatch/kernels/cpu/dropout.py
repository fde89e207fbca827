"""Dropout in the compiled loops; see `hogbatch.kernels.dropout`."""

import numpy as np

from hogbatch.jit import kernel
from hogbatch.kernels import dropout as counters
from hogbatch.kernels.dropout import SPREAD

factor, limit, mixed = map(kernel, (counters.factor, counters.limit, counters.mixed))


@kernel
def key_of(seed, update):
    """The key of an update, which is counted from 1."""
    return mixed(np.uint32(mixed(np.uint32(seed)) + np.uint32(update)))


@kernel
def drop(fraction, key, layer, rows, width, out):
    """Leave out some of the outputs out[B, H] of hidden layer `layer`; see `reference.Kernels`."""
    first = mixed(np.uint32(key + np.uint32(layer)))
    fewest, kept = limit(fraction), factor(fraction)
    for b in range(out.shape[0]):
        row = mixed(np.uint32(first + np.uint32(rows[b])))
        for h in range(width):
            drawn = mixed(np.uint32(row + np.uint32(np.uint32(h) * SPREAD)))
            out[b, h] = np.float32(0.0) if drawn < fewest else out[b, h] * kept
