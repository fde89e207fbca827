"""Hash tables: which ids stay in a full bucket, and that tables are independent."""

import numpy as np

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


def test_a_full_bucket_keeps_the_last_ids():
    codes, order = random_codes(1)
    tables = empty_tables(TABLES, BITS, BUCKET)
    insert(tables, 0, TABLES, codes, order)
    for t, code in buckets():
        came = arrivals(codes, order, t, code)
        assert tables.counts[t, code] == len(came)
        assert sorted(held(tables, t, code)) == sorted(came[-BUCKET:])
    assert tables.counts.max() > 2 * BUCKET and tables.counts.min() == 0


def test_other_tables_are_unchanged():
    codes, order = random_codes(6)
    tables = empty_tables(TABLES, BITS, BUCKET)
    insert(tables, 1, 3, codes, order)
    insert(tables, 3, 4, codes, order)
    whole = empty_tables(TABLES, BITS, BUCKET)
    insert(whole, 0, TABLES, codes, order)
    assert np.array_equal(tables.counts[1:4], whole.counts[1:4])
    assert all(
        held(tables, *bucket) == held(whole, *bucket) for bucket in buckets() if 0 < bucket[0] < 4
    )
    assert not tables.buckets[[0, 4]].any()
    clear(tables, 2, 4)
    assert (tables.counts.sum(axis=1) == [0, IDS, 0, 0, 0]).all()
