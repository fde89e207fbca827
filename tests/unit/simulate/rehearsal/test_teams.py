"""The threads of rehearsed CPU workers are divided as those of real ones."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

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
        ([16], [8]),
        ([17], [0]),
        ([8, 8], [8, 8]),
        ([8, 9], [0, 0]),
    ],
)
def test_threads_have_cores_of_their_own_first(threads, cores):
    assert pinned_cores(CPU, threads) == cores


NARROW = {"sparse": True, "hidden": (2, 2)}  # most work is in the sparse layer


@pytest.mark.parametrize(
    ("workers", "settings", "found"),
    [
        ([16], {}, [Teams(1, 8)]),
        ([17], {}, [Teams(17, 1)]),  # not pinned
        ([4], {"pin": False}, [Teams(4, 1)]),
        ([16], {"wanted": 4}, [Teams(4, 4)]),
        ([4], NARROW, [Teams(4, 1)]),
        ([4], {"wanted": 2, **NARROW}, [Teams(2, 2)]),
        ([4], {"wanted": 2, "sparse": True, "hidden": ()}, [Teams(4, 1)]),  # a loop without teams
    ],
)
def test_threads_are_divided_into_teams(workers, settings, found):
    assert teams(*map(cpu, workers), **settings) == found


def test_each_worker_has_teams_of_its_own():
    assert teams(cpu(4), GPU, cpu(2)) == [Teams(1, 4), None, Teams(1, 2)]
