"""Threads take turns on cores as under a fair scheduler."""

import pytest
from hypothesis import given, strategies as st

from hogbatch.simulate.event_queue import EventQueue
from hogbatch.simulate.rehearsal.cores import Cores


def ends(cores, slice_seconds, works):
    """When each of `works` ends, a list of seconds for each thread."""
    queue, found = EventQueue(), {}
    server = Cores(cores, slice_seconds, queue)

    def begin(thread, rest):
        if rest:
            server.run(thread, rest[0], lambda: done(thread, rest))

    def done(thread, rest):
        found.setdefault(thread, []).append(queue.now)
        begin(thread, rest[1:])

    for thread, seconds in enumerate(works):
        begin(thread, seconds)
    while queue.step():
        pass
    return [found.get(thread, []) for thread in range(len(works))]


@pytest.mark.parametrize(
    ("cores", "works", "expected"),
    [
        (2, [[0.01, 0.02], [0.005]], [[0.01, 0.03], [0.005]]),
        (1, [[0.004], [0.002]], [[0.006], [0.005]]),
        (1, [[0.001] * 4] * 2, [[0.001, 0.002, 0.003, 0.007], [0.004, 0.005, 0.006, 0.008]]),
        (1, [[0.001], [0.01]], [[0.001], [0.011]]),
    ],
    ids=["own core", "turns", "a slice of short batches", "nothing to do"],
)
def test_threads_of_one_core_take_turns(cores, works, expected):
    assert ends(cores, 0.003, works) == [pytest.approx(each) for each in expected]


@given(
    st.integers(1, 3),
    st.lists(st.lists(st.floats(1e-4, 0.02), min_size=1, max_size=5), min_size=1, max_size=7),
)
def test_no_time_is_lost_or_invented(cores, works):
    found = ends(cores, 0.003, works)
    for thread, seconds in enumerate(works):
        assert len(found[thread]) == len(seconds)
        assert found[thread][-1] >= sum(seconds) - 1e-6
    for core in range(cores):
        own = range(core, len(works), cores)
        busy = sum(sum(works[thread]) for thread in own)
        assert max((found[thread][-1] for thread in own), default=0.0) == pytest.approx(busy)
