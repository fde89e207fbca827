from itertools import pairwise

from hogbatch.events.trace import MAX_POINTS, Trace


def test_every_change_is_kept_while_there_are_few():
    trace = Trace()
    for second, value in ((0.00004, 1), (1.0, 2), (1.5, 4)):
        trace.add(second, value)
    assert trace.points == [(0.0, 1), (1.0, 2), (1.5, 4)]


def test_a_long_trace_is_thinned_and_covers_the_whole_run():
    trace = Trace()
    for n in range(200_000):
        trace.add(n * 0.01, n % 7)
    assert MAX_POINTS // 4 < len(trace.points) <= MAX_POINTS
    seconds = [second for second, _ in trace.points]
    gaps = [b - a for a, b in pairwise(seconds)]
    assert seconds[0] == 0.0 and seconds[-1] > 1990
    assert max(gaps) < 4 * min(gaps)


def test_the_last_point_has_the_current_value():
    trace = Trace()
    for n in range(5000):
        trace.add(n * 0.001, n)
        assert trace.points[-1][1] == n
