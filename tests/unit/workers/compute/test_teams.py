"""How the threads of a CPU worker are divided into teams."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from hogbatch.model.network import Network
from hogbatch.workers.compute.teams import Teams, computes_together, divide, gains_from_teams
from tests.support.assignments import examples
from tests.support.property_tests import max_examples


@pytest.mark.parametrize(
    ("wanted", "threads", "cores", "teams"),
    [
        # automatically there is one team of threads with cores of their own
        *((0, 1, 1, Teams(1, 1)), (0, 2, 2, Teams(1, 2)), (0, 16, 16, Teams(1, 16))),
        (0, 16, 8, Teams(1, 8)),  # a second thread on a core would compute no faster
        (0, 16, 0, Teams(16, 1)),  # not pinned: nobody waits for a thread without a core
        # or as many as wanted
        *((1, 8, 0, Teams(1, 8)), (2, 8, 4, Teams(2, 4)), (3, 8, 8, Teams(3, 2))),
        (9, 8, 4, Teams(8, 1)),
    ],
)
def test_threads_are_divided_into_teams(wanted, threads, cores, teams):
    assert divide(wanted, threads, cores, together=True) == teams
    assert divide(wanted, threads, cores, together=False) == Teams(threads, 1)


@max_examples(200)
@given(st.integers(0, 99), st.integers(1, 99), st.integers(0, 99), st.booleans())
def test_every_team_has_a_member_and_no_thread_is_in_two(wanted, threads, cores, together):
    teams = divide(wanted, threads, cores, together=together)
    assert teams.count >= 1 and teams.members >= 1
    assert teams.threads <= threads


def layers(features, *hidden):
    return Network.build(features, hidden, 1, "relu", "logistic").layer_views()


def test_dense_inputs_always_gain():
    assert gains_from_teams(layers(54, 512), 0.0, sparse=False)
    assert gains_from_teams(layers(54), 0.0, sparse=False)


@pytest.mark.parametrize(
    ("hidden", "stored", "gains"),
    [
        ((128,), 139.0, False),  # imdb
        ((512, 512, 512), 12.0, True),  # w8a
        ((512, 512), 18.0, True),  # delicious
        ((), 5.0, False),
    ],
)
def test_sparse_inputs_gain_if_most_of_the_work_is_in_dense_layers(hidden, stored, gains):
    assert gains_from_teams(layers(3000, *hidden), stored, sparse=True) is gains


@pytest.mark.parametrize("loop", ["linear", "wide", "hashed"])
@pytest.mark.parametrize("wanted", [0, 1])
def test_other_loops_have_no_teams(loop, wanted):
    assert not computes_together(wanted, loop, layers(12, 64, 64), examples(5))


def test_a_wanted_number_of_teams_decides_for_the_dense_loop():
    sparse = examples(50, sparse=True)
    narrow, deep = layers(sparse.features, 8), layers(sparse.features, 8, 512)
    assert np.diff(sparse.inputs.indptr).mean() > 2
    assert not computes_together(0, "dense", narrow, sparse)
    assert computes_together(1, "dense", narrow, sparse)
    assert computes_together(0, "dense", deep, sparse)
