from itertools import pairwise

from hogbatch.events.worker_figures import MAX_POINTS, Trace


def test_every_change_is_kept_while_there_are_few():
    trace = Trace()
    for second, value in ((0.00004, 1), (1.0, 2), (1.5, 4)):
        trace.add(second, value)
    assert trace.points == [(0.0, 1), (1.0, 2), (1.5, 4)]


def test_a_long_trace_is_thinned_and_covers_the_whole_run():
    trace = Trace()
    for n in range(20_000):
        trace.add(n * 0.01, n)
        assert trace.points[-1][1] == n
    assert MAX_POINTS // 4 < len(trace.points) <= MAX_POINTS
    gaps = [b[0] - a[0] for a, b in pairwise(trace.points)]
    assert trace.points[0][0] == 0.0 and trace.points[-1][0] > 199
    assert max(gaps) < 4 * min(gaps)
