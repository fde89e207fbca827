"""The costs of rehearsed workers depend on the settings of the run."""

from random import Random
from types import SimpleNamespace

import pytest

from hogbatch.config.values import WorkerRequest
from hogbatch.model.network import Network
from hogbatch.simulate.hardware.description import read_server
from hogbatch.simulate.rehearsal import rehearsal
from hogbatch.simulate.rehearsal.rehearsal import EngineFactory
from tests.support.assignments import examples


@pytest.mark.parametrize(
    ("optimizer", "merge", "sparse", "slots"),
    [
        ("adagrad", "delta", True, 1),
        ("adagrad", "delta", False, 0),
        ("adagrad", "average", True, 0),
        ("adam", "delta", True, 0),
    ],
)
def test_only_sums_of_sparse_rows_are_exchanged_and_only_added(
    monkeypatch, optimizer, merge, sparse, slots
):
    workloads = []
    monkeypatch.setattr(
        rehearsal, "GpuCost", lambda gpu, cpu, workload, **_: workloads.append(workload)
    )
    train = examples(20, sparse=sparse)
    training = SimpleNamespace(
        staleness_damping="root", lsh=None, optimizer=SimpleNamespace(l2=0.0)
    )
    setup = SimpleNamespace(
        config=SimpleNamespace(optimizer=optimizer, merge=merge),
        network=Network.build(train.features, (8,), 2, "relu", "softmax"),
        loaded=SimpleNamespace(train=train),
        plan=SimpleNamespace(training=training),
    )
    server, components = read_server("h100-16cores"), SimpleNamespace(setup=setup, assign=None)
    factory = EngineFactory(server, components, None, Random(0), None, 1)
    factory.create(WorkerRequest("gpu", ordinal=0), None, 0)
    assert [workload.exchanged_slots for workload in workloads] == [slots]
