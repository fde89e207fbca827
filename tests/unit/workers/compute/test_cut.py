from itertools import pairwise

from hypothesis import given, strategies as st

from hogbatch.workers.compute.ranges import cut

leases = given(rows=st.integers(1, 5000), batch=st.integers(1, 700), threads=st.integers(1, 40))


@leases
def test_the_ranges_cover_every_row_once_and_in_order(rows, batch, threads):
    parts = cut(rows, batch, threads)
    assert parts[0][0] == 0 and parts[-1][1] == rows
    assert all(left[1] == right[0] for left, right in pairwise(parts))
    assert all(start < stop for start, stop in parts)


@leases
def test_every_range_except_the_last_is_whole_batches(rows, batch, threads):
    assert all((stop - start) % batch == 0 for start, stop in cut(rows, batch, threads)[:-1])


@leases
def test_threads_get_one_range_each_and_equal_numbers_of_batches(rows, batch, threads):
    batches = [-(-(stop - start) // batch) for start, stop in cut(rows, batch, threads)]
    assert len(batches) == min(threads, -(-rows // batch))
    assert max(batches) - min(batches) <= 1
