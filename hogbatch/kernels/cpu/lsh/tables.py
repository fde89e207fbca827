"""L hash tables with buckets of fixed size, in flat arrays that processes can share.

Tables are independent of each other, so threads build different tables without locks.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hogbatch.jit import kernel
from hogbatch.kernels.cpu.intrinsics import address, prefetch_line

INSERT_BLOCK = 512  # ids whose codes stay in cache while they are inserted into all tables
PREFETCH_DISTANCE = 16  # ids by which a bucket is prefetched before it is written


class BucketArrays(NamedTuple):
    """Bucket `code` of table t contains the first min(counts, bucket) ids of buckets[t, code]."""

    buckets: NDArray[np.int32]  # [L, 2**bits, bucket]
    counts: NDArray[np.int32]  # [L, 2**bits]: ids inserted, including replaced ones


def empty_tables(tables: int, bits: int, bucket: int) -> BucketArrays:
    """Allocate `tables` tables of 2**bits buckets for `bucket` ids each."""
    return BucketArrays(
        np.zeros((tables, 1 << bits, bucket), np.int32), np.zeros((tables, 1 << bits), np.int32)
    )


@kernel
def clear(tables, first_table, last_table):
    """Remove all ids from tables first_table:last_table."""
    for t in range(first_table, last_table):
        for code in range(tables.counts.shape[1]):
            tables.counts[t, code] = 0


@kernel
def insert(tables, first_table, last_table, codes, order):
    """Insert the ids order[n], int32, into tables first_table:last_table, in that order.

    Id i is inserted into bucket codes[i, t]; codes is int32[N, L]. In a full bucket a new id
    replaces the oldest one, so `order` should be random.
    """
    for start in range(0, order.shape[0], INSERT_BLOCK):
        stop = min(start + INSERT_BLOCK, order.shape[0])
        for t in range(first_table, last_table):
            insert_range(tables, t, codes, order, start, stop)


@kernel
def insert_range(tables, t, codes, order, start, stop):
    """Insert order[start:stop] into table t."""
    size = tables.buckets.shape[2]
    buckets = address(tables.buckets) + 4 * t * tables.counts.shape[1] * size
    for n in range(start, stop):
        if n + PREFETCH_DISTANCE < stop:
            next_code = codes[order[n + PREFETCH_DISTANCE], t]
            slot = tables.counts[t, next_code] % size
            prefetch_line(buckets + 4 * (next_code * size + slot))
        code = codes[order[n], t]
        count = tables.counts[t, code]
        tables.buckets[t, code, count % size] = order[n]
        tables.counts[t, code] = count + 1
