"""Compiled passes between the replica of a rehearsed GPU worker and the shared model."""

import numpy as np

from hogbatch.jit import exact, kernel
from hogbatch.kernels.cpu.losses import INFINITE, MAGNITUDE, bits_of


@kernel
def touched_features(inputs, rows, stamps, stamp, touched):
    """List the distinct features of rows int64[N] in touched int32[F]; return their number.

    Sets stamps[F] to `stamp` for these features; no cell of it may equal `stamp` before the call.
    """
    found = 0
    for b in range(rows.shape[0]):
        for n in range(inputs.indptr[rows[b]], inputs.indptr[rows[b] + 1]):
            feature = np.uint32(inputs.indices[n])
            touched[found] = feature  # overwritten by the next one unless it is new
            found += stamps[feature] != stamp
            stamps[feature] = stamp
    return found


# Compiled without fast math, which would turn (change + pulled) - pulled into
# change, and the replica would differ from the sum of what it has merged.


@exact
def rejoin_and_take(params, base, pulled, change):
    """`rejoin`, then `take` of kernels.gpu.contract; return whether `change` is finite."""
    worst = np.int32(0)
    for i in range(params.shape[0]):
        joined = (params[i] - base[i]) + pulled[i]
        taken = joined - pulled[i]
        params[i] = joined
        base[i] = joined
        change[i] = taken
        worst = max(worst, np.int32(bits_of(taken) & MAGNITUDE))
    return worst < INFINITE


@exact
def take_last(params, base, pulled, change):
    """`rejoin_and_take` for a replica that is pulled next: only `change` is written.

    `pulled` may be `base`.
    """
    worst = np.int32(0)
    for i in range(params.shape[0]):
        joined = (params[i] - base[i]) + pulled[i]
        change[i] = joined - pulled[i]
        worst = max(worst, np.int32(bits_of(change[i]) & MAGNITUDE))
    return worst < INFINITE


@exact
def add_damped(scale, fraction, seen, change, shared):
    """`add_damped` of kernels.gpu.contract."""
    least, weight = np.float32(scale), np.float32(fraction * scale)
    for i in range(change.shape[0]):
        shared[i] += change[i] * (weight / (least + abs(shared[i] - seen[i])))


@exact
def join(params, base, shared):
    """params = shared + (params - base); base = shared"""
    for i in range(params.shape[0]):
        pulled = shared[i]
        params[i] = pulled + (params[i] - base[i])
        base[i] = pulled


@exact
def rejoin_rows(touched, width, shared, params, base):
    """`rejoin_rows` of kernels.gpu.contract, for flat arrays of rows of `width` cells."""
    for t in range(touched.shape[0]):
        start = np.int64(touched[t]) * width
        stop = start + width
        join(params[start:stop], base[start:stop], shared[start:stop])


@exact
def take_rows(touched, width, params, base, change):
    """`take_rows` of kernels.gpu.contract; return whether `change` is finite."""
    worst = np.int32(0)
    for t in range(touched.shape[0]):
        start = np.int64(touched[t]) * width
        after, before = params[start : start + width], base[start : start + width]
        taken = change[t * width : (t + 1) * width]
        for i in range(width):
            taken[i] = after[i] - before[i]
            before[i] = after[i]
            worst = max(worst, np.int32(bits_of(taken[i]) & MAGNITUDE))
    return worst < INFINITE


@exact
def add_scaled_rows(fraction, touched, width, change, shared):
    """`add_rows` of kernels.gpu.contract."""
    factor = np.float32(fraction)
    for t in range(touched.shape[0]):
        start = np.int64(touched[t]) * width
        cells, taken = shared[start : start + width], change[t * width : (t + 1) * width]
        for i in range(width):
            cells[i] += factor * taken[i]
