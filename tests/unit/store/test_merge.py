import numpy as np
import pytest

from hogbatch.store.merge import CHUNK, MERGES, average, delta, overwrite

P = 2 * CHUNK + 5  # the last chunk is a short one


@pytest.fixture
def before():
    return np.random.default_rng(1).standard_normal(P).astype(np.float32)


@pytest.fixture
def after():
    return np.random.default_rng(2).standard_normal(P).astype(np.float32)


@pytest.mark.parametrize("name", MERGES)
def test_a_replica_that_nobody_changed_changes_nothing(name, before):
    shared = before.copy()
    assert MERGES[name](shared, before, before.copy()) is True
    assert np.array_equal(shared, before)


@pytest.mark.parametrize("name", MERGES)
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, P - 1])
def test_a_replica_that_is_not_finite_is_refused_whole(name, wrong, where, before, after):
    shared = before.copy()
    after[where] = wrong
    assert MERGES[name](shared, before, after) is False
    assert np.array_equal(shared, before)


def test_delta_refuses_a_change_too_large_for_its_numbers(before, after):
    shared = before.copy()
    before[7], after[7] = -3e38, 3e38
    expected = shared.copy()
    assert delta(shared, before, after) is False
    assert np.array_equal(shared, expected)


def test_delta_adds_the_change_to_what_others_made_of_it(before, after):
    shared = before + 1
    expected = shared + (after - before)
    assert delta(shared, before, after)
    assert np.array_equal(shared, expected)


def whole(array):
    """Small whole numbers, whose sums float32 holds exactly."""
    return np.rint(array * 8).astype(np.float32)


def test_delta_loses_no_update_of_others(before, after):
    shared = whole(before)
    start = shared.copy()
    first, second = shared.copy(), shared.copy()  # two workers pull the same model
    first += 3
    shared[5] += 10  # a third one works on the shared model itself
    assert delta(shared, start, first)
    second += whole(after)
    shared[6] += 20
    assert delta(shared, start, second)
    expected = start + 3 + whole(after)
    expected[5] += 10
    expected[6] += 20
    assert np.array_equal(shared, expected)


def test_overwrite_loses_the_updates_of_others(before, after):
    shared = before + 1
    assert overwrite(shared, before, after)
    assert np.array_equal(shared, after)


def test_average_keeps_half_of_each_side(before, after):
    shared = before + 1
    expected = (shared + after) / 2
    assert average(shared, before, after)
    np.testing.assert_allclose(shared, expected, rtol=1e-6)


def test_average_holds_for_the_largest_numbers():
    shared = np.full(3, 3e38, np.float32)
    assert average(shared, shared.copy(), shared.copy())
    assert np.array_equal(shared, np.full(3, 3e38, np.float32))


@pytest.mark.parametrize("name", MERGES)
def test_the_replica_is_left_as_it_was(name, before, after):
    copies = before.copy(), after.copy()
    MERGES[name](before + 1, before, after)
    assert np.array_equal(before, copies[0])
    assert np.array_equal(after, copies[1])


@pytest.mark.parametrize("name", MERGES)
def test_an_empty_model_merges(name):
    assert MERGES[name](*(np.empty(0, np.float32) for _ in range(3))) is True
