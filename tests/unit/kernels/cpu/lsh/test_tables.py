"""Hash tables: which ids stay in a full bucket, and that tables are independent."""

import numpy as np
import pytest
from scipy.stats import chi2

from hogbatch.kernels.cpu.lsh.tables import INSERT_BLOCK, clear, empty_tables, insert

IDS, TABLES, BITS, BUCKET = INSERT_BLOCK + 100, 5, 4, 6  # more ids than one block


def random_codes(seed):
    """Some buckets get many ids, some few, some none."""
    random = np.random.default_rng(seed)
    codes = np.minimum(random.geometric(0.2, (IDS, TABLES)) - 1, (1 << BITS) - 2)
    return codes.astype(np.int32), random.permutation(IDS).astype(np.int32)


def arrivals(codes, order, t, code):
    """The ids inserted into a bucket, in order."""
    return [i for i in order.tolist() if codes[i, t] == code]


def held(tables, t, code):
    return tables.buckets[t, code, : min(tables.counts[t, code], BUCKET)].tolist()


def buckets():
    return ((t, code) for t in range(TABLES) for code in range(1 << BITS))


def test_fifo_keeps_the_last():
    codes, order = random_codes(1)
    tables = empty_tables(TABLES, BITS, BUCKET)
    insert(tables, 0, TABLES, codes, order, False, 0)
    for t, code in buckets():
        came = arrivals(codes, order, t, code)
        assert tables.counts[t, code] == len(came)
        assert sorted(held(tables, t, code)) == sorted(came[-BUCKET:])
    assert tables.counts.max() > 2 * BUCKET and tables.counts.min() == 0


def test_a_reservoir_contains_distinct_inserted_ids():
    codes, order = random_codes(3)
    tables, other = (empty_tables(TABLES, BITS, BUCKET) for _ in range(2))
    insert(tables, 0, TABLES, codes, order, True, 0)
    insert(other, 0, TABLES, codes, order, True, 2)
    assert not np.array_equal(tables.buckets, other.buckets)  # they depend on the seed
    for t, code in buckets():
        came, kept = arrivals(codes, order, t, code), held(tables, t, code)
        assert tables.counts[t, code] == len(came)
        assert len(set(kept)) == len(kept) == min(len(came), BUCKET)
        assert set(kept) <= set(came)


@pytest.mark.parametrize(("ids", "bucket"), [(60, 6), (3, 1)])
def test_a_reservoir_keeps_each_id_with_equal_probability(ids, bucket):
    tables = 500
    full = empty_tables(tables, 1, bucket)
    codes, order = np.zeros((ids, tables), np.int32), np.arange(ids, dtype=np.int32)
    insert(full, 0, tables, codes, order, True, 17)
    kept = np.bincount(full.buckets[:, 0].ravel(), minlength=ids)
    fraction = bucket / ids
    square = ((kept - tables * fraction) ** 2).sum() / (tables * fraction * (1 - fraction))
    low, high = chi2.ppf([0.001, 0.999], ids - 1)
    assert low < square * (ids - 1) / ids < high


def test_other_tables_are_unchanged():
    codes, order = random_codes(6)
    tables = empty_tables(TABLES, BITS, BUCKET)
    insert(tables, 1, 3, codes, order, False, 0)
    insert(tables, 3, 4, codes, order, False, 0)
    whole = empty_tables(TABLES, BITS, BUCKET)
    insert(whole, 0, TABLES, codes, order, False, 0)
    assert np.array_equal(tables.counts[1:4], whole.counts[1:4])
    assert all(
        held(tables, *bucket) == held(whole, *bucket) for bucket in buckets() if 0 < bucket[0] < 4
    )
    assert not tables.buckets[[0, 4]].any()
    clear(tables, 2, 4)
    assert (tables.counts.sum(axis=1) == [0, IDS, 0, 0, 0]).all()
