"""Selection of a batch's active outputs: its labels, candidates from hash tables, random ones.

The candidates of a row are the `top` outputs in its buckets whose products with the row, estimated
from sketches, are the largest. Rows contribute their candidates, best first, in equal numbers until
`capacity` outputs are active. If that limit is reached, each row has contributed as many as any
other row or one less, or all its candidates.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import inlined, kernel
from hogbatch.kernels.cpu.intrinsics import address, prefetch_line
from hogbatch.kernels.cpu.lsh.functions import HashFunctions
from hogbatch.kernels.cpu.lsh.sketches import Sketches, rank_by_product
from hogbatch.kernels.cpu.lsh.tables import BucketArrays

IDS_PER_LINE = 16  # int32 in a cache line
MASK_32 = 0xFFFFFFFF
PREFETCH_DISTANCE = 4  # tables by which a bucket is prefetched before it is read
MAX_DRAWS = 16  # draws of an inactive output, before the next inactive one is taken instead


class SelectionRule(NamedTuple):
    """The rules by which outputs other than the labels become active."""

    top: int  # maximum number of candidates of a row
    capacity: int  # maximum number of candidates per batch, in addition to the labels
    random: int  # outputs drawn at random from those not active yet


class NeuronFinder(NamedTuple):
    """Everything needed to find the candidates of a batch."""

    rule: SelectionRule
    functions: HashFunctions
    tables: BucketArrays
    sketches: Sketches


class HashedRows(NamedTuple):
    """Hashes of the rows of a batch."""

    codes: NDArray[np.int32]  # [B, L]: bucket numbers
    sketches: NDArray[np.int32]  # [B, WORDS]


class SelectionScratch(NamedTuple):
    """Scratch memory of one thread for batches of up to B rows.

    R is the maximum number of outputs in a row's buckets.
    """

    candidates: NDArray[np.int32]  # [B, min(R, capacity)]: best first
    sizes: NDArray[np.int64]  # [B]: number of candidates of each row
    used: NDArray[np.int64]  # [B]: candidates that have been considered already
    found: NDArray[np.int32]  # [R + 1]: outputs in a row's buckets, in the order of discovery
    is_found: NDArray[np.uint8]  # [C]: 1 for the outputs in `found`, 0 between rows
    estimates: NDArray[np.float32]  # [min(R, capacity)]: see `rank_by_product`
    state: NDArray[np.int64]  # [1]: see `random_below`


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
def random_below(state, bound):
    """Draw a number in [0, bound) from the generator `state`, an int64[1] in [1, 2^32).

    Marsaglia 2003, "Xorshift RNGs", the 32-bit version.
    """
    x = state[0]
    x ^= (x << 13) & MASK_32
    x ^= x >> 17
    x ^= (x << 5) & MASK_32
    state[0] = x
    return (x * bound) >> 32


@kernel
def scratch(batch, tables, classes, capacity, seed):
    """Allocate for `batch` rows and C = `classes` outputs; each thread has its own seed."""
    count = tables.buckets.shape[0]
    most = min(count * tables.buckets.shape[2], classes)
    state = np.empty(1, np.int64)
    state[0] = max(1, mix(mix(seed) + 1))
    return SelectionScratch(
        np.empty((batch, min(most, capacity)), np.int32),
        np.empty(batch, np.int64),
        np.empty(batch, np.int64),
        np.empty(most + 1, np.int32),
        np.zeros(classes, np.uint8),
        np.empty(min(most, capacity), np.float32),
        state,
    )


@inlined
def select(finder, hashed, labels, rows, space, position, active):
    """Select the active outputs of a batch; return their number.

    `hashed` contains the hashes of `rows`[B], `labels` the labels of the whole set. The outputs are
    written to `active`, labels first and without duplicates, and position[active[n]] is set to n;
    position[C], int32, must be -1 before. `active`, int32, has a length of at least the number of
    labels of the rows + capacity + random.
    """
    rule, count = finder.rule, add_labels(labels, rows, position, active)
    for b in range(rows.shape[0]):
        space.sizes[b] = find(finder, hashed, b, space)
    count = add_candidates(rule.capacity, rows.shape[0], space, position, active, count)
    return add_random(rule.random, space.state, position, active, count)


@kernel
def clear_positions(active, count, position):
    """Reset position[C] to -1 for the outputs active[:count]."""
    for n in range(count):
        position[active[n]] = -1


@kernel
def add_labels(labels, rows, position, active):
    """Activate the labels of `rows`; return the number of active outputs."""
    count = 0
    single = labels.indptr.shape[0] == 0
    for b in range(rows.shape[0]):
        if single:
            count = add(np.int32(labels.values[rows[b]]), position, active, count)
        else:
            for n in range(labels.indptr[rows[b]], labels.indptr[rows[b] + 1]):
                count = add(labels.indices[n], position, active, count)
    return count


@kernel
def add(neuron, position, active, count):
    """Activate `neuron` unless it is active; return their number. active[count] must exist."""
    before = position[np.uint32(neuron)]
    active[count] = neuron  # overwritten by the next one if it is not new
    position[np.uint32(neuron)] = count if before < 0 else before
    return count + (before < 0)


@kernel
def add_candidates(capacity, batch, space, position, active, count):
    """Activate up to `capacity` candidates of the rows; return the number of active outputs.

    In each round, every row with candidates left contributes an equal part of the remaining
    capacity. Candidates that are active already do not count.
    """
    limit, waiting = count + capacity, batch
    space.used[:batch] = 0
    while waiting > 0 and count < limit:
        fraction = max(1, (limit - count) // waiting)
        waiting = 0
        for b in range(batch):
            n, size = space.used[b], space.sizes[b]
            stop = min(count + fraction, limit)
            while n < size and count < stop:
                count = add(space.candidates[b, n], position, active, count)
                n += 1
            space.used[b] = n
            waiting += n < size
    return count


@kernel
def add_random(number, state, position, active, count):
    """Activate up to `number` random inactive outputs; return the number of active outputs."""
    classes = position.shape[0]
    for _ in range(min(number, classes - count)):
        neuron = random_below(state, classes)
        for _ in range(MAX_DRAWS):
            if position[neuron] < 0:
                break
            neuron = random_below(state, classes)
        while position[neuron] >= 0:
            neuron = neuron + 1 if neuron + 1 < classes else 0
        count = add(neuron, position, active, count)
    return count


# --- candidates of one row ------------------------------------------------------------------------


@inlined
def find(finder, hashed, b, space):
    """space.candidates[b] = the candidates of row b, best first; return their number."""
    near = space.found[: collect(finder.tables, hashed.codes[b], space)]
    limit = min(space.candidates.shape[1], finder.rule.top)
    size = rank_by_product(
        finder.sketches, hashed.sketches[b], near, limit, space.estimates, space.candidates[b]
    )
    for n in range(near.shape[0]):
        space.is_found[np.uint32(near[n])] = 0
    return size


@kernel
def collect(tables, codes, space):
    """Collect the outputs in one row's buckets codes[L] in space.found; return their number."""
    count, size = tables.buckets.shape[0], tables.buckets.shape[2]
    for t in range(min(PREFETCH_DISTANCE, count)):
        prefetch_bucket(tables, t, codes)
    found = 0
    for t in range(count):
        if t + PREFETCH_DISTANCE < count:
            prefetch_bucket(tables, t + PREFETCH_DISTANCE, codes)
        code = codes[t]
        for k in range(min(tables.counts[t, code], size)):
            neuron = tables.buckets[t, code, k]
            space.found[found] = neuron  # overwritten by the next one if it is not new
            found += space.is_found[np.uint32(neuron)] == 0
            space.is_found[np.uint32(neuron)] = 1
    return found


@kernel
def prefetch_bucket(tables, t, codes):
    """Prefetch the row's bucket of table t."""
    width, size = tables.counts.shape[1], tables.buckets.shape[2]
    code = codes[t]
    bucket = address(tables.buckets) + 4 * (t * width + code) * size
    for k in range(0, min(tables.counts[t, code], size), IDS_PER_LINE):
        prefetch_line(bucket + 4 * k)
