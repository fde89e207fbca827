"""Servers whose changes are outliers."""

import math

import pytest
from hypothesis import given, strategies as st

from hogbatch.cluster.decisions.outliers import (
    IN_A_ROW,
    KNOWN_AFTER,
    OutlierDetector,
    ServerChange,
    times_as_large,
)
from tests.support.property_tests import max_examples


def changes(*norms, updates=10, rows=640):
    """Changes of the servers "0", "1", ... with equal work."""
    return {str(place): ServerChange(norm, updates, rows) for place, norm in enumerate(norms)}


@pytest.fixture
def two():
    """Knows the usual change of two servers, which is 1."""
    detector = OutlierDetector()
    for _ in range(KNOWN_AFTER):
        assert detector.find(changes(1.0, 1.0)) == {}
    return detector


def test_a_change_of_more_than_a_hundred_times_the_usual_one_is_an_outlier_at_once(two):
    assert two.find(changes(1.0, 99.0)) == {}
    assert two.find(changes(1.0, 101.0)) == {"1": "its change was 101 times as large as usual"}


def test_a_change_of_more_than_ten_times_the_usual_one_is_an_outlier_in_the_third_merge(two):
    found = [two.find(changes(11.0, 1.0)) for _ in range(IN_A_ROW)]
    reason = "its changes were more than 10 times as large as usual in 3 merges in a row"
    assert found == [{}, {}, {"0": reason}]


@pytest.mark.parametrize("norms", [(11.0, 11.0, 9.0, 11.0, 11.0), (11.0, 11.0, 0.0)])
def test_a_usual_change_ends_a_row_of_merges_and_none_does_not(two, norms):
    for norm in norms:
        assert two.find(changes(norm, 1.0)) == {}
    assert two.find(changes(11.0, 1.0)) != {}


def test_of_two_servers_none_is_an_outlier_before_the_usual_change_is_known():
    detector = OutlierDetector()
    for _ in range(KNOWN_AFTER - 1):
        detector.find(changes(1.0, 1.0))
    assert detector.find(changes(1.0, 1e6)) == {}


def test_of_three_servers_the_others_decide_until_the_usual_change_is_known():
    assert list(OutlierDetector().find(changes(1.0, 2.0, 500.0))) == ["2"]
    assert OutlierDetector().find(changes(0.0, 2.0, 500.0)) == {}, "one other says nothing"


def test_half_of_the_servers_are_left_out_only_if_the_usual_change_is_known():
    assert OutlierDetector().find(changes(1.0, 1.0, 500.0, 500.0)) == {}
    detector = OutlierDetector()
    for _ in range(KNOWN_AFTER):
        detector.find(changes(1.0, 1.0, 1.0, 1.0))
    assert list(detector.find(changes(1.0, 1.0, 500.0, 500.0))) == ["2", "3"]


@pytest.mark.parametrize(
    "merges",
    [
        [(1e3, 2e3), (1e4, 2e4), (1e5, 2e5)],  # the changes of all servers are large
        [(1.0, 1e-6), (1.0, 0.0)] * 2 * IN_A_ROW,  # another one does little
        [(0.0, 500.0)] * 2 * IN_A_ROW,  # another one has no change, for a reason that all may have
        [(1e9,)],  # a server alone
    ],
)
def test_no_server_is_an_outlier_without_others_to_compare_it_with(two, merges):
    assert [two.find(changes(*norms)) for norms in merges] == [{}] * len(merges)


@pytest.mark.parametrize(
    ("before", "then"),
    [
        ((1.0, 11.0), (1.0, 500.0)),  # changes of outliers do not become usual
        ((1e-3, 1e-3), (1e-3, 0.5)),  # the usual change follows that of all servers
    ],
)
def test_the_usual_change_is_that_of_the_last_merges(two, before, then):
    for _ in range(50):
        two.find(changes(*before))
    assert list(two.find(changes(*then))) == ["1"]


def test_a_server_that_has_joined_is_compared_at_once(two):
    two.forget("1")
    found = two.find({"0": ServerChange(1.0, 10, 640), "new": ServerChange(2e4, 0, 0)})
    assert list(found) == ["new"]


def test_a_server_that_has_left_is_forgotten(two):
    for _ in range(IN_A_ROW - 1):
        two.find(changes(1.0, 50.0))
    two.forget("1")
    assert two.find(changes(1.0, 50.0)) == {}


def test_more_updates_or_rows_may_have_a_larger_change():
    usual = ServerChange(1.0, 10, 640)
    assert times_as_large(ServerChange(100.0, 1000, 640), usual) == 1.0
    assert times_as_large(ServerChange(100.0, 10, 64_000), usual) == 1.0
    assert times_as_large(ServerChange(100.0, 1, 64), usual) == 100.0
    assert times_as_large(ServerChange(1.0, 1, 1), ServerChange(2.0, 0, 0)) == 0.5


def test_a_server_whose_leases_last_several_merges_is_judged_by_its_mean_work():
    """It has a hundred times the rows of the other, but reports them in every fourth merge."""
    detector = OutlierDetector()
    slow = ServerChange(1.0, 10, 640)
    for merge in range(40):
        work = (4000, 256_000) if merge % 4 == 0 else (0, 0)
        assert detector.find({"slow": slow, "fast": ServerChange(90.0, *work)}) == {}


def test_a_server_whose_first_lease_lasts_several_merges_may_be_fast(two):
    for merge in range(3 * IN_A_ROW):
        work = (20_000, 1_280_000) if merge == 2 * IN_A_ROW else (0, 0)
        assert two.find(changes(1.0, 1.0) | {"fast": ServerChange(2000.0, *work)}) == {}


@st.composite
def sound_runs(draw):
    """The merges of servers of different speed, whose updates have about the same length.

    A server's updates agree in their direction more or less, leases are counted late, and the
    length of an update changes slowly.
    """
    servers = draw(st.integers(1, 6))
    speeds = draw(st.lists(st.integers(1, 30), min_size=servers, max_size=servers))
    batch = draw(st.sampled_from([1, 64, 1024]))
    agreement = draw(st.floats(0.5, 1.0))
    lease = draw(st.integers(1, 4))  # merges
    length, merges = 1.0, []
    for number in range(draw(st.integers(1, 40))):
        length *= draw(st.floats(0.9, 1.1))
        seconds = draw(st.floats(0.5, 2.0))
        merge = {}
        for place, speed in enumerate(speeds):
            noise = draw(st.floats(0.6, 1.7))
            updates = max(1, round(speed * seconds))
            norm = draw(st.sampled_from([1, 1, 1, 0])) * length * noise * updates**agreement
            counted = lease * updates * ((number + place) % lease == 0)
            merge[str(place)] = ServerChange(norm, counted, counted * batch)
        merges.append(merge)
    return merges


@max_examples(100)
@given(sound_runs())
def test_no_server_of_a_sound_run_is_ever_an_outlier(merges):
    detector = OutlierDetector()
    assert [found for merge in merges if (found := detector.find(merge))] == []


@max_examples(100)
@given(
    st.lists(
        st.lists(st.one_of(st.just(0.0), st.floats(1e-30, 1e30)), min_size=1, max_size=5),
        max_size=30,
    )
)
def test_a_majority_always_remains(merges):
    detector = OutlierDetector()
    for number, norms in enumerate(merges):
        found = detector.find(changes(*norms))
        known = number >= KNOWN_AFTER
        assert len(found) <= (len(norms) // 2 if known else math.ceil(len(norms) / 2) - 1)
        assert all(norms[int(key)] >= max(norms) / 1e60 and norms[int(key)] > 0 for key in found)
