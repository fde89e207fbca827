import math

import pytest
from hypothesis import given, strategies as st

from hogbatch.policy.base import WorkerView
from hogbatch.policy.ranking import Others, Ranking
from tests.support.property_tests import max_examples

CHANGES = st.lists(st.tuples(st.integers(0, 9), st.none() | st.floats(allow_nan=False)))


def view(worker):
    return WorkerView("cpu", 1, 1, 64, batch_size=worker)


def seen(others):
    return [other.batch_size for other in others]


@max_examples(100)
@given(CHANGES, st.integers(0, 9))
def test_a_ranking_is_what_sorting_gives(changes, worker):
    ranked, values = Ranking(), {}
    for number, value in changes:
        if value is None:
            ranked.drop(number)
            values.pop(number, None)
        else:
            ranked.put(number, value)
            values[number] = value
    assert ranked.order == sorted((value, number) for number, value in values.items())
    rest = {number: value for number, value in values.items() if number != worker}
    assert ranked.lowest_without(worker) == min(rest.values(), default=math.inf)
    others = Others(ranked, worker, view)
    assert len(others) == len(rest)
    assert seen(others) == [number for _, number in sorted((v, n) for n, v in rest.items())]
    assert seen(others) == [others[place].batch_size for place in range(len(others))]


def test_the_others_are_a_sequence():
    ranked = Ranking()
    for worker, value in {7: 2.0, 8: 1.0, 9: 3.0, 5: 2.5}.items():
        ranked.put(worker, value)
    others = Others(ranked, 7, view)
    assert (others[0], others[-1]) == (view(8), view(9))
    assert seen(others[1:]) == [5, 9]
    assert seen(reversed(others)) == [9, 5, 8]
    with pytest.raises(IndexError):
        others[3]
