from itertools import pairwise

from hypothesis import given, strategies as st

from hogbatch.workers.compute.teams import cut


@given(rows=st.integers(1, 5000), batch=st.integers(1, 700), threads=st.integers(1, 40))
def test_threads_get_one_range_of_whole_batches_each_and_equal_numbers_of_them(
    rows, batch, threads
):
    parts = cut(rows, batch, threads)
    assert parts[0][0] == 0 and parts[-1][1] == rows
    assert all(left[1] == right[0] for left, right in pairwise(parts))
    assert all(start < stop for start, stop in parts)
    assert all((stop - start) % batch == 0 for start, stop in parts[:-1])
    batches = [-(-(stop - start) // batch) for start, stop in parts]
    assert len(batches) == min(threads, -(-rows // batch))
    assert max(batches) - min(batches) <= 1
