"""The threads of rehearsed CPU workers, and the rows that GPU workers exchange."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from hogbatch.config.values import WorkerRequest
from hogbatch.model.network import Network
from hogbatch.simulate.hardware.description import read_server
from hogbatch.simulate.rehearsal.rehearsal import teams_of, workload_of
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


NARROW = {"sparse": True, "hidden": (2, 2)}  # most work is in the sparse layer


@pytest.mark.parametrize(
    ("workers", "settings", "found"),
    [
        ([16], {}, [Teams(1, 8)]),
        ([17], {}, [Teams(17, 1)]),  # not pinned
        ([4], {"pin": False}, [Teams(4, 1)]),
        ([8, 8], {}, [Teams(1, 8), Teams(1, 8)]),
        ([8, 9], {}, [Teams(8, 1), Teams(9, 1)]),
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


@pytest.mark.parametrize(
    ("optimizer", "merge", "sparse", "slots"),
    [
        ("adagrad", "delta", True, 1),
        ("adagrad", "delta", False, 0),
        ("adagrad", "average", True, 0),
        ("adam", "delta", True, 0),
    ],
)
def test_only_sums_of_sparse_rows_are_exchanged_and_only_added(optimizer, merge, sparse, slots):
    train = examples(20, sparse=sparse)
    training = SimpleNamespace(lsh=None, optimizer=SimpleNamespace(l2=0.0))
    setup = SimpleNamespace(
        config=SimpleNamespace(optimizer=optimizer, merge=merge),
        network=Network.build(train.features, (8,), 2, "relu", "softmax"),
        loaded=SimpleNamespace(train=train),
        plan=SimpleNamespace(training=training),
    )
    assert workload_of(setup).exchanged_slots == slots
