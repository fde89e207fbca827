"""The division of the threads of a CPU worker into teams."""

import pytest
from hypothesis import given, strategies as st

from hogbatch.model.network import Network
from hogbatch.workers.compute.teams import Teams, computes_together, divide, gains_from_teams
from tests.support.assignments import examples


@pytest.mark.parametrize(
    ("wanted", "threads", "cores", "teams"),
    [
        (0, 1, 1, Teams(1, 1)),
        (0, 2, 2, Teams(1, 2)),
        (0, 16, 8, Teams(1, 8)),  # a second thread on a core would compute no faster
        (0, 16, 0, Teams(16, 1)),  # not pinned: nobody waits for a thread without a core
        *((1, 8, cores, Teams(1, 8)) for cores in (0, 4, 8)),
        *((2, 8, 8, Teams(2, 4)), (3, 8, 8, Teams(3, 2)), (9, 8, 8, Teams(8, 1))),
    ],
)
def test_there_are_as_many_teams_as_wanted_or_one_of_threads_with_own_cores(
    wanted, threads, cores, teams
):
    assert divide(wanted, threads, cores, together=True) == teams
    assert divide(wanted, threads, cores, together=False) == Teams(threads, 1)


@given(st.integers(0, 99), st.integers(1, 99), st.integers(0, 99), st.booleans())
def test_every_team_has_a_member_and_no_thread_is_in_two(wanted, threads, cores, together):
    teams = divide(wanted, threads, cores, together=together)
    assert teams.count >= 1 and teams.members >= 1 and teams.threads <= threads


def layers(features, *hidden):
    return Network.build(features, hidden, 1, "relu", "logistic").layer_views()


@pytest.mark.parametrize(
    ("hidden", "stored", "gains"),
    [
        ((128,), 139.0, False),  # imdb
        ((512, 512, 512), 12.0, True),  # w8a
        ((512, 512), 18.0, True),  # delicious
        ((), 5.0, False),
    ],
)
def test_inputs_gain_if_they_are_dense_or_most_of_the_work_is_in_dense_layers(
    hidden, stored, gains
):
    assert gains_from_teams(layers(3000, *hidden), stored, sparse=True) is gains
    assert gains_from_teams(layers(54, *hidden), 0.0, sparse=False)


def test_a_wanted_number_of_teams_decides_for_the_dense_loop_alone():
    sparse = examples(50, sparse=True)
    narrow, deep = layers(sparse.features, 8), layers(sparse.features, 8, 512)
    assert not computes_together(0, "dense", narrow, sparse)
    assert computes_together(1, "dense", narrow, sparse)
    assert computes_together(0, "dense", deep, sparse)
    for loop in ("linear", "wide", "hashed"):
        assert not any(computes_together(wanted, loop, deep, examples(5)) for wanted in (0, 1))
