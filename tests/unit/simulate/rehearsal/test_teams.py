"""The threads of rehearsed CPU workers are divided as those of real ones."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from hogbatch.config.values import WorkerRequest
from hogbatch.simulate.hardware.description import read_server
from hogbatch.simulate.rehearsal.rehearsal import pinned_cores, teams_of
from hogbatch.workers.compute.teams import Teams
from tests.support.assignments import assignment, examples

CPU = replace(read_server("epyc-64cores").cpu, threads=16, cores=8)
GPU = WorkerRequest("gpu", ordinal=0)


def cpu(threads):
    return WorkerRequest("cpu", threads=threads)


def teams(*workers, wanted=0, sparse=False, hidden=(8, 16), pin=True):
    made = assignment(examples(20, sparse=sparse), hidden=hidden)
    training = SimpleNamespace(cpu_teams=wanted, lsh=None)
    return teams_of(CPU, workers, training, made.network, made.train, pin=pin)


@pytest.mark.parametrize(
    ("threads", "cores"),
    [
        ([4], [4]),
        ([8], [8]),
        ([12], [8]),
        ([16], [8]),
        ([17], [0]),
        ([8, 8], [8, 8]),
        ([8, 9], [0, 0]),
    ],
)
def test_threads_have_cores_of_their_own_first(threads, cores):
    assert pinned_cores(CPU, threads) == cores


def test_by_default_a_worker_is_one_team_with_a_thread_on_each_core():
    assert teams(cpu(4)) == [Teams(1, 4)]
    assert teams(cpu(16)) == [Teams(1, 8)]
    assert teams(cpu(4), GPU, cpu(2)) == [Teams(1, 4), None, Teams(1, 2)]


def test_threads_that_are_not_pinned_compute_on_their_own():
    assert teams(cpu(17)) == [Teams(17, 1)]
    assert teams(cpu(4), pin=False) == [Teams(4, 1)]


def test_the_user_chooses_the_number_of_teams():
    assert teams(cpu(16), wanted=4) == [Teams(4, 4)]
    assert teams(cpu(4), wanted=4) == [Teams(4, 1)]


def test_networks_with_most_work_in_a_sparse_layer_have_no_teams_unless_the_user_wants_them():
    narrow = {"sparse": True, "hidden": (2, 2)}
    assert teams(cpu(4), **narrow) == [Teams(4, 1)]
    assert teams(cpu(4), wanted=2, **narrow) == [Teams(2, 2)]


def test_loops_without_teams_never_have_them():
    assert teams(cpu(4), wanted=2, sparse=True, hidden=()) == [Teams(4, 1)]
