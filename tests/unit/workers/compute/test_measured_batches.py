import pytest

from hogbatch.workers.compute.measured_batches import (
    DENSIFY_TEST_ROWS,
    MAX_BATCH_SECONDS,
    MAX_CPU_SECONDS,
    densifying_is_faster,
    measure_cpu_sizes,
    measure_sizes,
)

ROWS = 1000


@pytest.mark.parametrize(
    "times",
    [
        {16: 1e-3, 32: 1e-3, 64: 1e-3, 128: 2e-3, 256: 4e-3},  # two doublings without speedup
        {16: 1e-3, 32: 2.5e-3, 64: 3e-3, 128: 3e-3, 256: 6e-3, 512: 12e-3},  # not a single one
        {16: 0.2, 32: 0.2, 64: 1.1 * MAX_BATCH_SECONDS},
        {16: 1e-3, 32: 1e-3, 64: 1e-3, 128: None},  # which does not fit
    ],
    ids=["no speedup", "speedup again", "too slow", "too large"],
)
def test_measuring_stops_where_larger_batches_are_of_no_use(times):
    expected = {size: seconds for size, seconds in times.items() if seconds is not None}
    assert dict(measure_sizes(times.__getitem__, ROWS)) == expected


@pytest.mark.parametrize(("rows", "sizes"), [(100, [16, 32, 64, 100]), (16, [16]), (5, [5])])
def test_measuring_stops_at_all_rows(rows, sizes):
    assert [size for size, _ in measure_sizes(lambda batch: 1e-3, rows)] == sizes


@pytest.mark.parametrize(
    ("sparse", "dense", "faster"),
    [
        *((1.0, 0.5, True), (1.0, 1.0, False)),
        *((None, 1.0, True), (1.0, None, False), (None, None, False)),
    ],
)
def test_rows_are_densified_if_a_batch_is_faster_or_only_then_fits(sparse, dense, faster):
    assert densifying_is_faster(lambda rows, densify: dense if densify else sparse, ROWS) == faster


@pytest.mark.parametrize(("rows", "batch"), [(ROWS, ROWS), (10**6, DENSIFY_TEST_ROWS)])
def test_dense_and_sparse_rows_are_compared_in_one_batch(rows, batch):
    asked = []
    densifying_is_faster(lambda *given: asked.append(given), rows)
    assert asked == [(batch, False), (batch, True)]


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [(240, [240, 120, 60, 30, 15, 7, 3, 1]), (8, [8, 4, 2, 1]), (1, [1])],
)
def test_a_cpu_measures_its_largest_batch_and_smaller_ones(largest, sizes):
    measured = measure_cpu_sizes(lambda size, batches: 1e-5 * size * batches, largest, ROWS)
    assert measured == tuple((size, pytest.approx(1e-5 * size)) for size in sizes)


def test_the_fastest_repetition_of_a_cpu_batch_counts():
    seconds = iter([3e-3, 2e-3, 9e-3, 1e-3, 4e-3] + 10 * [5e-3])
    assert measure_cpu_sizes(lambda *_: next(seconds), 1, 1) == ((1, 1e-3),)


def test_all_sizes_of_a_cpu_are_measured_in_turn_until_the_time_is_over():
    called = []

    def seconds_of(size, batches):
        called.append(size)
        return MAX_CPU_SECONDS / 6.5

    assert [size for size, _ in measure_cpu_sizes(seconds_of, 8, ROWS)] == [8, 4, 2, 1]
    assert called == [8, 4, 2, 1, 8, 4, 2]
    slow = 2 * MAX_CPU_SECONDS
    assert measure_cpu_sizes(lambda *_: slow, 64, ROWS) == ((64, slow),)


@pytest.mark.parametrize("row_seconds", [1e-8, 1e-6, 1e-4])
def test_the_call_itself_takes_little_of_the_time_that_a_cpu_measures(row_seconds):
    def seconds_of(size, batches):
        return 5e-5 + row_seconds * size * batches

    for size, seconds in measure_cpu_sizes(seconds_of, 64, 10**6):
        assert seconds == pytest.approx(row_seconds * size, rel=0.05), size


def test_a_cpu_measures_no_more_rows_in_a_call_than_there_are():
    called = []

    def seconds_of(size, batches):
        called.append(size * batches)
        return 1e-5

    measure_cpu_sizes(seconds_of, 64, 150)
    assert max(called) == 150
