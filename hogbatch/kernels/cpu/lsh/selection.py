"""Selection of a batch's active outputs: its labels, candidates from hash tables, random ones.

The candidates of a row are selected from the buckets of the row by one of five rules; the first
four are SLIDE's (Chen et al. 2020):

    vanilla    the first `top` outputs of tables visited in random order
    union      all outputs
    topk       the `top` outputs that occur in the most buckets; ties: the first found
    threshold  the outputs that occur in at least `min_buckets` buckets
    nearest    the `top` outputs with the largest products with the row, estimated from sketches

Rows contribute their candidates, best first, in equal numbers until `capacity` outputs are active.
If that limit is reached, each row has contributed as many as any other row or one less, or all its
candidates.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.cpu.brgemm import address
from hogbatch.kernels.cpu.dots import prefetch_line
from hogbatch.kernels.cpu.lsh.functions import HashFunctions
from hogbatch.kernels.cpu.lsh.rng import mix, random_below
from hogbatch.kernels.cpu.lsh.sketches import Sketches, rank_by_product
from hogbatch.kernels.cpu.lsh.tables import BucketArrays

VANILLA: Final = 0
UNION: Final = 1
TOPK: Final = 2
THRESHOLD: Final = 3
NEAREST: Final = 4
RULES: Final = {
    "vanilla": VANILLA,
    "union": UNION,
    "topk": TOPK,
    "threshold": THRESHOLD,
    "nearest": NEAREST,
}

IDS_PER_LINE = 16  # int32 in a cache line
PREFETCH_DISTANCE = 4  # tables by which a bucket is prefetched before it is read
MAX_COUNT = 255  # upper limit of the bucket counts
MAX_DRAWS = 16  # draws of an inactive output, before the next inactive one is taken instead


class SelectionRule(NamedTuple):
    """How outputs other than the labels become active."""

    kind: int  # VANILLA, ...
    top: int  # vanilla, topk and nearest: maximum number of candidates of a row
    min_buckets: int  # threshold: buckets in which a candidate occurs
    capacity: int  # maximum number of candidates per batch, in addition to the labels
    random: int  # outputs drawn at random from those not active yet


class NeuronFinder(NamedTuple):
    """Everything needed to find the candidates of a batch."""

    rule: SelectionRule
    functions: HashFunctions
    tables: BucketArrays
    sketches: Sketches  # used by `nearest` only


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
    seen_ids: NDArray[np.int32]  # [R + 1]: outputs in a row's buckets, in the order of discovery
    repeated: NDArray[np.int32]  # [R + 1]: the outputs in `seen_ids` that occur in several buckets
    bucket_counts: NDArray[np.uint8]  # [C]: buckets that contain each output; 0 between rows
    estimates: NDArray[np.float32]  # [min(R, capacity)]: see `rank_by_product`
    group_starts: NDArray[np.int64]  # [MAX_COUNT + 1]: start of each count in `candidates`
    order: NDArray[np.int64]  # [L]: of the tables
    state: NDArray[np.int64]  # [1]: see `rng.random_below`


@kernel
def scratch(batch, tables, classes, capacity, seed):
    """Allocate for `batch` rows and C = `classes` outputs; each thread has its own seed."""
    count = tables.buckets.shape[0]
    max_seen = min(count * tables.buckets.shape[2], classes)
    state = np.empty(1, np.int64)
    state[0] = max(1, mix(mix(seed) + 1))
    return SelectionScratch(
        np.empty((batch, min(max_seen, capacity)), np.int32),
        np.empty(batch, np.int64),
        np.empty(batch, np.int64),
        np.empty(max_seen + 1, np.int32),
        np.empty(max_seen + 1, np.int32),
        np.zeros(classes, np.uint8),
        np.empty(min(max_seen, capacity), np.float32),
        np.empty(MAX_COUNT + 1, np.int64),
        np.arange(count),
        state,
    )


@kernel
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


@kernel
def find(finder, hashed, b, space):
    """space.candidates[b] = the candidates of row b, best first; return their number."""
    rule, tables, codes = finder.rule, finder.tables, hashed.codes[b]
    limit = space.candidates.shape[1]
    if rule.kind == NEAREST:
        seen = collect(tables, codes, False, space.seen_ids.shape[0], space)
        wanted, near = min(limit, rule.top), space.seen_ids[:seen]
        size = rank_by_product(
            finder.sketches, hashed.sketches[b], near, wanted, space.estimates, space.candidates[b]
        )
    elif rule.kind == TOPK or rule.kind == THRESHOLD:
        seen = collect(tables, codes, False, space.seen_ids.shape[0], space)
        min_buckets = min(rule.min_buckets, MAX_COUNT) if rule.kind == THRESHOLD else 1
        wanted = min(limit, rule.top) if rule.kind == TOPK else limit
        size = rank_by_count(seen, min_buckets, wanted, space, space.candidates[b])
    else:
        if rule.kind == VANILLA:
            limit = min(limit, rule.top)
        shuffle(space.order, space.state)
        seen = collect(tables, codes, True, limit, space)
        size = min(seen, limit)
        space.candidates[b, :size] = space.seen_ids[:size]
    for n in range(seen):
        space.bucket_counts[np.uint32(space.seen_ids[n])] = 0
    return size


@kernel
def shuffle(order, state):
    """Shuffle `order` in place (Fisher-Yates)."""
    for n in range(order.shape[0] - 1, 0, -1):
        other = random_below(state, n + 1)
        order[n], order[other] = order[other], order[n]


@kernel
def collect(tables, codes, shuffled, enough, space):
    """Collect the outputs in one row's buckets codes[L] in space.seen_ids; return their number.

    space.bucket_counts counts the buckets that contain each output, up to MAX_COUNT. Tables are
    visited one by one, in space.order if `shuffled`, until there are `enough` outputs.
    """
    count, size = tables.buckets.shape[0], tables.buckets.shape[2]
    for n in range(min(PREFETCH_DISTANCE, count)):
        prefetch_bucket(tables, space.order[n] if shuffled else n, codes)
    seen = 0
    for n in range(count):
        if n + PREFETCH_DISTANCE < count:
            ahead = n + PREFETCH_DISTANCE
            prefetch_bucket(tables, space.order[ahead] if shuffled else ahead, codes)
        t = space.order[n] if shuffled else n
        code = codes[t]
        for k in range(min(tables.counts[t, code], size)):
            neuron = tables.buckets[t, code, k]
            bucket_count = space.bucket_counts[np.uint32(neuron)]
            space.seen_ids[seen] = neuron  # overwritten by the next one if it is not new
            seen += bucket_count == 0
            space.bucket_counts[np.uint32(neuron)] = bucket_count + (bucket_count < MAX_COUNT)
        if seen >= enough:
            break
    return seen


@kernel
def prefetch_bucket(tables, t, codes):
    """Prefetch the row's bucket of table t."""
    width, size = tables.counts.shape[1], tables.buckets.shape[2]
    code = codes[t]
    bucket = address(tables.buckets) + 4 * (t * width + code) * size
    for k in range(0, min(tables.counts[t, code], size), IDS_PER_LINE):
        prefetch_line(bucket + 4 * k)


@kernel
def rank_by_count(seen, min_buckets, limit, space, candidates):
    """Rank those of the `seen` outputs that occur in `min_buckets` or more; return their number.

    Up to `limit` outputs, those in the most buckets first; ties in the order of discovery. Nearly
    all outputs occur in one bucket only, so only the rest is sorted, by a counting sort.
    """
    repeated = 0
    for n in range(seen):
        space.repeated[repeated] = space.seen_ids[n]
        repeated += space.bucket_counts[np.uint32(space.seen_ids[n])] > 1
    group_starts = space.group_starts
    group_starts[:] = 0
    for n in range(repeated):
        group_starts[space.bucket_counts[space.repeated[n]]] += 1
    size = 0
    for bucket_count in range(group_starts.shape[0] - 1, 1, -1):
        same, group_starts[bucket_count] = group_starts[bucket_count], size
        size += same if bucket_count >= min_buckets else 0
    for n in range(repeated):
        neuron = space.repeated[n]
        bucket_count = space.bucket_counts[neuron]
        if bucket_count >= min_buckets and group_starts[bucket_count] < limit:
            candidates[group_starts[bucket_count]] = neuron
            group_starts[bucket_count] += 1
    size = min(size, limit)
    if min_buckets <= 1:
        for n in range(seen):
            if size == limit:
                break
            if space.bucket_counts[space.seen_ids[n]] == 1:
                candidates[size] = space.seen_ids[n]
                size += 1
    return size
