"""The neurons that a batch computes: its true labels, what its rows find, and some at random.

Five rules say what a row finds in the buckets that its bucket numbers name; the first four are
SLIDE's (Chen et al. 2020):

    vanilla    tables in random order until `top` neurons are gathered
    union      all that lie there
    topk       the `top` that lie in most buckets; among equals the first found
    threshold  those that lie in at least `seen` buckets
    nearest    the `top` of the largest products with the row, as far as sketches tell

Of what they find, best first, rows bring in equal shares, until `capacity` neurons are there: when
that binds, a row has brought in as many as any other, or one less, or all that it has.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.cpu.brgemm import address
from hogbatch.kernels.cpu.dots import fetch_line
from hogbatch.kernels.cpu.lsh.chance import below, mix
from hogbatch.kernels.cpu.lsh.functions import Functions
from hogbatch.kernels.cpu.lsh.sketches import Sketches, rank_by_product
from hogbatch.kernels.cpu.lsh.tables import Tables

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

IN_LINE = 16  # int32 in a cache line
AHEAD = 4  # tables by which a bucket is fetched before it is read
OFTEN = 255  # buckets: as far as is counted
TRIES = 16  # at a neuron that is not active yet, before the next such is taken


class Rule(NamedTuple):
    """What makes a neuron active beside being a true label."""

    kind: int  # VANILLA, ...
    top: int  # vanilla, topk and nearest: neurons that a row finds
    seen: int  # threshold: buckets
    capacity: int  # most neurons found by the rows of a batch, beside their labels
    random: int  # neurons drawn from the others, as many as there are


class Finder(NamedTuple):
    """What finds the neurons of a batch."""

    rule: Rule
    functions: Functions
    tables: Tables
    sketches: Sketches  # read by `nearest` alone


class Hashed(NamedTuple):
    """The rows of a batch, hashed."""

    codes: NDArray[np.int32]  # [B, L]: their bucket numbers
    marks: NDArray[np.int32]  # [B, WORDS]: their sketches


class Scratch(NamedTuple):
    """Memory of one thread for batches of up to B rows."""

    found: NDArray[np.int32]  # [B, the most that a row may bring in]: best first
    sizes: NDArray[np.int64]  # [B]: how many of them there are
    taken: NDArray[np.int64]  # [B]: how many of them had their turn
    met: NDArray[np.int32]  # [1 + the most in a row's buckets]: in the order of meeting
    several: NDArray[np.int32]  # as `met`: those met several times
    times: NDArray[np.uint8]  # [C]: in how many buckets, up to OFTEN; zero between rows
    promises: NDArray[np.float32]  # [the most that a row may bring in]
    starts: NDArray[np.int64]  # [OFTEN + 1]: where those met so often begin in `found`
    order: NDArray[np.int64]  # [L]: of the tables
    state: NDArray[np.int64]  # [1]: see `chance.below`


@kernel
def scratch(batch, tables, classes, capacity, seed):
    """Allocate for `batch` rows and C = `classes` neurons; each thread has its own seed."""
    count = tables.buckets.shape[0]
    most = min(count * tables.buckets.shape[2], classes)
    state = np.empty(1, np.int64)
    state[0] = max(1, mix(mix(seed) + 1))
    return Scratch(
        np.empty((batch, min(most, capacity)), np.int32),
        np.empty(batch, np.int64),
        np.empty(batch, np.int64),
        np.empty(most + 1, np.int32),
        np.empty(most + 1, np.int32),
        np.zeros(classes, np.uint8),
        np.empty(min(most, capacity), np.float32),
        np.empty(OFTEN + 1, np.int64),
        np.arange(count),
        state,
    )


@kernel
def select(finder, hashed, labels, rows, space, place, active):
    """Choose the active neurons of a batch; return how many there are.

    `hashed` are the `rows`[B], `labels` their true labels. Neuron active[n]
    gets place[active[n]] = n; place[C], int32, is -1 before. True labels are there first; no neuron
    is there twice. active, int32, has room for all labels of the rows + capacity + random.
    """
    rule, count = finder.rule, add_labels(labels, rows, place, active)
    for b in range(rows.shape[0]):
        space.sizes[b] = find(finder, hashed, b, space)
    count = take_turns(rule.capacity, rows.shape[0], space, place, active, count)
    return add_random(rule.random, space.state, place, active, count)


@kernel
def forget(active, count, place):
    """Make place[C] -1 again, where active[:count] are."""
    for n in range(count):
        place[active[n]] = -1


@kernel
def add_labels(labels, rows, place, active):
    """The true labels of `rows`; return how many are active now."""
    count = 0
    single = labels.indptr.shape[0] == 0
    for b in range(rows.shape[0]):
        if single:
            count = add(np.int32(labels.values[rows[b]]), place, active, count)
        else:
            for n in range(labels.indptr[rows[b]], labels.indptr[rows[b] + 1]):
                count = add(labels.indices[n], place, active, count)
    return count


@kernel
def add(neuron, place, active, count):
    """Make `neuron` active, unless it is; return how many are. active[count] must be there."""
    before = place[np.uint32(neuron)]
    active[count] = neuron  # if it is not new, the next takes its place
    place[np.uint32(neuron)] = count if before < 0 else before
    return count + (before < 0)


@kernel
def take_turns(capacity, batch, space, place, active, count):
    """Up to `capacity` of what the rows found; return how many are active.

    In each round the rows that have more left bring in equal shares of what room there is. What is
    active already, is nobody's.
    """
    limit, waiting = count + capacity, batch
    space.taken[:batch] = 0
    while waiting > 0 and count < limit:
        fraction = max(1, (limit - count) // waiting)
        waiting = 0
        for b in range(batch):
            n, size = space.taken[b], space.sizes[b]
            stop = min(count + fraction, limit)
            while n < size and count < stop:
                count = add(space.found[b, n], place, active, count)
                n += 1
            space.taken[b] = n
            waiting += n < size
    return count


@kernel
def add_random(most, state, place, active, count):
    """`most` neurons that are not active, or all of them; return how many are active."""
    classes = place.shape[0]
    for _ in range(min(most, classes - count)):
        neuron = below(state, classes)
        for _ in range(TRIES):
            if place[neuron] < 0:
                break
            neuron = below(state, classes)
        while place[neuron] >= 0:
            neuron = neuron + 1 if neuron + 1 < classes else 0
        count = add(neuron, place, active, count)
    return count


# --- what one row finds ---------------------------------------------------------------------------


@kernel
def find(finder, hashed, b, space):
    """space.found[b] = what row b finds, best first; return how many that are."""
    rule, tables, codes = finder.rule, finder.tables, hashed.codes[b]
    limit = space.found.shape[1]
    if rule.kind == NEAREST:
        met = meet(tables, codes, False, space.met.shape[0], space)
        most, near = min(limit, rule.top), space.met[:met]
        size = rank_by_product(
            finder.sketches, hashed.marks[b], near, most, space.promises, space.found[b]
        )
    elif rule.kind == TOPK or rule.kind == THRESHOLD:
        met = meet(tables, codes, False, space.met.shape[0], space)
        least = min(rule.seen, OFTEN) if rule.kind == THRESHOLD else 1
        most = min(limit, rule.top) if rule.kind == TOPK else limit
        size = rank(met, least, most, space, space.found[b])
    else:
        if rule.kind == VANILLA:
            limit = min(limit, rule.top)
        shuffle(space.order, space.state)
        met = meet(tables, codes, True, limit, space)
        size = min(met, limit)
        space.found[b, :size] = space.met[:size]
    for n in range(met):
        space.times[np.uint32(space.met[n])] = 0
    return size


@kernel
def shuffle(order, state):
    for n in range(order.shape[0] - 1, 0, -1):
        other = below(state, n + 1)
        order[n], order[other] = order[other], order[n]


@kernel
def meet(tables, codes, shuffled, enough, space):
    """Collect the neurons in one row's buckets codes[L] in space.met; return how many there are.

    space.times counts in how many buckets each lies. Table by table, in space.order if `shuffled`,
    until there are `enough`.
    """
    count, size = tables.buckets.shape[0], tables.buckets.shape[2]
    for n in range(min(AHEAD, count)):
        fetch_bucket(tables, space.order[n] if shuffled else n, codes)
    met = 0
    for n in range(count):
        if n + AHEAD < count:
            fetch_bucket(tables, space.order[n + AHEAD] if shuffled else n + AHEAD, codes)
        t = space.order[n] if shuffled else n
        code = codes[t]
        for k in range(min(tables.counts[t, code], size)):
            neuron = tables.buckets[t, code, k]
            times = space.times[np.uint32(neuron)]
            space.met[met] = neuron  # if it is not new, the next takes its place
            met += times == 0
            space.times[np.uint32(neuron)] = times + (times < OFTEN)
        if met >= enough:
            break
    return met


@kernel
def fetch_bucket(tables, t, codes):
    """Have the bucket of table t near soon."""
    width, size = tables.counts.shape[1], tables.buckets.shape[2]
    code = codes[t]
    bucket = address(tables.buckets) + 4 * (t * width + code) * size
    for k in range(0, min(tables.counts[t, code], size), IN_LINE):
        fetch_line(bucket + 4 * k)


@kernel
def rank(met, least, most, space, found):
    """Up to `most` of the `met` neurons that lie in `least` buckets or more; return how many.

    Those in most buckets first, among equals the first met. Nearly all lie in one bucket, so only
    the others are sorted, by counting.
    """
    several = 0
    for n in range(met):
        space.several[several] = space.met[n]
        several += space.times[np.uint32(space.met[n])] > 1
    starts = space.starts
    starts[:] = 0
    for n in range(several):
        starts[space.times[space.several[n]]] += 1
    size = 0
    for times in range(starts.shape[0] - 1, 1, -1):
        same, starts[times] = starts[times], size
        size += same if times >= least else 0
    for n in range(several):
        neuron = space.several[n]
        times = space.times[neuron]
        if times >= least and starts[times] < most:
            found[starts[times]] = neuron
            starts[times] += 1
    size = min(size, most)
    if least <= 1:
        for n in range(met):
            if size == most:
                break
            if space.times[space.met[n]] == 1:
                found[size] = space.met[n]
                size += 1
    return size
