"""L hash tables with buckets of fixed size, in flat arrays that processes can share.

Tables are built apart from each other, so threads build some each, without locks.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.cpu.brgemm import address
from hogbatch.kernels.cpu.dots import fetch_line
from hogbatch.kernels.cpu.lsh.chance import mix, scaled

TOGETHER = 512  # ids whose codes stay near while they go into one table after the other
AHEAD = 16  # ids by which a bucket is fetched before it is written


class Tables(NamedTuple):
    """Bucket `code` of table t holds the first min(counts, bucket) ids of buckets[t, code]."""

    buckets: NDArray[np.int32]  # [L, 2**bits, bucket]
    counts: NDArray[np.int32]  # [L, 2**bits]: ids that came, also those that are gone again


def empty_tables(tables: int, bits: int, bucket: int) -> Tables:
    """Allocate `tables` tables of 2**bits buckets for `bucket` ids each."""
    return Tables(
        np.zeros((tables, 1 << bits, bucket), np.int32), np.zeros((tables, 1 << bits), np.int32)
    )


@kernel
def clear(tables, first_table, last_table):
    """Forget all ids of tables first_table:last_table."""
    for t in range(first_table, last_table):
        for code in range(tables.counts.shape[1]):
            tables.counts[t, code] = 0


@kernel
def insert(tables, first_table, last_table, codes, order, reservoir, seed):
    """Put the ids order[n], int32, into tables first_table:last_table, one after the other.

    Id i goes to bucket codes[i, t]; codes is int32[N, L]. A full bucket forgets its oldest id, or
    with `reservoir` keeps each id that came with equal probability (Vitter 1985, algorithm R).
    Who comes last stays, so `order` is best random.
    """
    for start in range(0, order.shape[0], TOGETHER):
        stop = min(start + TOGETHER, order.shape[0])
        for t in range(first_table, last_table):
            insert_some(tables, t, codes, order, start, stop, reservoir, mix(seed + t))


@kernel
def insert_some(tables, t, codes, order, start, stop, reservoir, key):
    """`insert` order[start:stop] into table t; `key` is its random number."""
    size = tables.buckets.shape[2]
    buckets = address(tables.buckets) + 4 * t * tables.counts.shape[1] * size
    for n in range(start, stop):
        if n + AHEAD < stop:
            next_code = codes[order[n + AHEAD], t]
            place = tables.counts[t, next_code] % size
            fetch_line(buckets + 4 * (next_code * size + place))
        id = order[n]
        code = codes[id, t]
        count = tables.counts[t, code]
        place = count
        if count >= size:
            place = scaled(mix(key ^ id), count + 1) if reservoir else count % size
        if place < size:
            tables.buckets[t, code, place] = id
        tables.counts[t, code] = count + 1
